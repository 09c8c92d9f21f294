//! The flags of `millpond load` that concern cookies.

use clap::Args;
use millpond_load::CookiePlan;

use super::Failure;

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub(super) struct CookieFlags {
    /// Each connection is a user: it keeps the cookies that the server sets, and sends them back
    /// where their path fits, until they expire. The next connection in its place has them too
    #[arg(long, conflicts_with_all = ["script", "find_max"])]
    cookies: bool,
    /// A cookie to send, as ab's -C; may be given several times. With --cookies each user begins
    /// with it, and the server may change it
    #[arg(short = 'C', long, value_name = "NAME=VALUE", value_parser = parse_cookie,
        conflicts_with = "script")]
    cookie: Vec<(String, String)>,
}

/// A pair that a Cookie field can carry.
fn parse_cookie(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    let is_plain = |text: &str| {
        text.bytes()
            .all(|byte| byte > b' ' && byte != 0x7f && byte != b';')
    };
    if name.is_empty() || !is_plain(name) || !is_plain(value) {
        return Err("neither name nor value holds blanks, semicolons or control characters".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

impl CookieFlags {
    /// What users begin with, if there are any.
    pub(super) fn plan(&self) -> Option<CookiePlan> {
        let given = self.cookie.clone();
        self.cookies.then_some(CookiePlan { given })
    }

    /// The field of requests whose cookies stay as they are; `fields` are the others.
    pub(super) fn field(
        &self,
        fields: &[(String, String)],
    ) -> Result<Option<(String, String)>, Failure> {
        let is_given = self.cookies || !self.cookie.is_empty();
        let is_twice = |(name, _): &(String, String)| name.eq_ignore_ascii_case("cookie");
        if is_given && fields.iter().any(is_twice) {
            return Err(Failure::usage(
                "a request has one Cookie field: give its cookies with --cookie NAME=VALUE and \
                 leave -H Cookie out",
            ));
        }
        if self.cookies || self.cookie.is_empty() {
            return Ok(None);
        }
        let pairs = self.cookie.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Ok(Some(("Cookie".to_owned(), pairs.join("; "))))
    }
}

#[cfg(test)]
#[path = "tests/cookies.rs"]
mod tests;
