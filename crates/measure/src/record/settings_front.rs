//! What each setting of one allocator changes, and which of them are worth choosing between (`--settings`).

use serde::{Deserialize, Serialize};

use super::Measure;
use crate::statistics::{Comparison, Verdict};

/// What the rounds say of a setting, in memory and CPU per request together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingEffect {
    /// None is set: all ratios are against this.
    Default,
    /// One of both differs for certain.
    Changes,
    /// Both are the same within the margin.
    Nothing,
    /// The rounds do not tell.
    #[default]
    Undecided,
    /// One of both must not be believed, and the other does not differ.
    NotTrusted,
}

impl SettingEffect {
    /// One or two words for a table.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Changes => "changes",
            Self::Nothing => "changes nothing",
            Self::Undecided => "undecided",
            Self::NotTrusted => "not trusted",
        }
    }
}

/// One setting, or the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingAnswer {
    /// The candidate.
    pub candidate: String,
    /// What is set, without the allocator's name; `(default)` for nothing.
    pub setting: String,
    /// What that is said to change, in a few words.
    pub what_it_changes: String,
    /// What the rounds say.
    pub effect: SettingEffect,
    /// Of the default and those that certainly need less memory or CPU than it: whether no other of them needs as little of
    /// both and less of one, by the estimates.
    pub is_on_front: bool,
    /// Memory against the default; `None` of the default, and where it was not measured.
    pub memory: Option<Comparison>,
    /// CPU per request against the default.
    pub cpu: Option<Comparison>,
    /// Others on the front that the intervals do not tell from it, neither in memory nor in CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alike: Vec<String>,
    /// What it changes, with numbers.
    pub sentence: String,
}

/// Memory against CPU per request of all settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingsFront {
    /// Whose settings.
    pub allocator: String,
    /// What stands for memory: of several measures the geometric mean of their ratios.
    pub memory: Vec<Measure>,
    /// The same for CPU.
    pub cpu: Vec<Measure>,
    /// Memory of the default, in bytes, if that is one measure.
    pub default_memory_bytes: Option<f64>,
    /// CPU time per request of the default, in nanoseconds, if that is one measure.
    pub default_cpu_ns: Option<f64>,
    /// The default first, then the settings in order of candidates.
    pub settings: Vec<SettingAnswer>,
    /// Candidates on the front, the least memory first.
    pub front: Vec<String>,
    /// How many do what, and who is on the front.
    pub sentence: String,
}

impl SettingAnswer {
    /// Whether it certainly needs less than the default, of memory or of CPU.
    #[must_use]
    pub fn has_gain(&self) -> bool {
        let both = [&self.memory, &self.cpu].into_iter().flatten();
        both.into_iter().any(|one| one.verdict == Verdict::Better)
    }
}

impl SettingsFront {
    /// Those on the front, the least memory first.
    pub fn on_front(&self) -> impl Iterator<Item = &SettingAnswer> {
        let names = self.front.iter();
        names.filter_map(|name| self.settings.iter().find(|one| one.candidate == *name))
    }
}
