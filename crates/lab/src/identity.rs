//! The user that a target runs as, from `/etc/passwd` and `/etc/group`.
//!
//! The user's flag becomes ids here; the second stage of the launcher takes them on.

use std::fs;

/// A process as the kernel knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Resolves a name or a number; `Err` is a sentence.
    pub fn find(user: &str) -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::in_tables(user, &read("/etc/passwd"), &read("/etc/group"))
            .ok_or_else(|| format!("there is no user {user} in /etc/passwd"))
    }

    fn in_tables(user: &str, passwd: &str, group: &str) -> Option<Self> {
        // name:password:uid:gid:...
        let line = passwd.lines().find(|line| {
            let mut fields = line.split(':');
            fields.next() == Some(user) || fields.nth(1) == Some(user)
        })?;
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        // name:password:gid:member,member
        let groups = group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let id = fields.nth(2)?.parse().ok()?;
            fields
                .next()?
                .split(',')
                .any(|member| member == name)
                .then_some(id)
        });
        let mut groups: Vec<u32> = std::iter::once(gid).chain(groups).collect();
        groups.dedup();
        Some(Self { uid, gid, groups })
    }

    /// `1000:1000:1000,27`: user, group, all groups.
    pub(crate) fn to_word(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(ToString::to_string).collect();
        format!("{}:{}:{}", self.uid, self.gid, groups.join(","))
    }

    /// Reads `to_word`.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let mut fields = word.split(':');
        let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let groups = fields
            .next()?
            .split(',')
            .map(str::parse)
            .collect::<Result<_, _>>();
        Some(Self {
            uid,
            gid,
            groups: groups.ok()?,
        })
    }
}

/// The name of a user, or the number where there is none.
pub(crate) fn name_of(uid: u32) -> String {
    let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
#[path = "tests/identity.rs"]
mod tests;
