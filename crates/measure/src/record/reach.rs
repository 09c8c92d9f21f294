//! How much of a server an allocator can change at all: calls of malloc, and who holds its memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Operation;
use crate::units::{format_bytes, format_count};

/// Fewer heap calls than this per request, and an allocator has next to nothing to do with a request.
const CALLS_MIN: f64 = 0.1;
/// Memory that is less than this share of the whole is not worth a word.
const SHARE_MIN: f64 = 0.01;
/// From this share on an allocator of the program's own, or a runtime's heap, is what a user has to know first.
const SHARE_MUCH: f64 = 0.25;

/// Who holds memory.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Holder {
    /// The allocator that serves malloc.
    Malloc,
    /// The heap of a language's runtime.
    Runtime {
        /// The runtime's name.
        name: String,
    },
    /// An allocator that is a part of an object.
    Embedded {
        /// The allocator's name.
        name: String,
        /// The object's file name.
        object: String,
    },
    /// Code that maps memory by itself.
    Object {
        /// The file name of its object.
        object: String,
    },
    /// Nobody who could be found: mapped by system calls of its own.
    Unknown,
    /// Stacks of threads.
    Stacks,
    /// Variables of the program and its libraries.
    Variables,
    /// Memory that several processes share.
    Shared,
}

impl Holder {
    /// In words.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Malloc => "malloc".to_owned(),
            Self::Runtime { name } => name.clone(),
            Self::Embedded { name, object } => format!("{name} inside {object}"),
            Self::Object { object } => format!("mapped by {object} itself"),
            Self::Unknown => "mapped by unknown code".to_owned(),
            Self::Stacks => "stacks".to_owned(),
            Self::Variables => "variables of program and libraries".to_owned(),
            Self::Shared => "shared memory".to_owned(),
        }
    }

    /// Whether it does what malloc does, beside it.
    #[must_use]
    pub const fn is_other_heap(&self) -> bool {
        matches!(
            self,
            Self::Runtime { .. } | Self::Embedded { .. } | Self::Object { .. }
        )
    }

    /// Whether a variable gives its memory to malloc.
    fn has_switch(&self) -> bool {
        let switched = |name: &String| name.starts_with("PHP") || name.starts_with("CPython");
        matches!(self, Self::Runtime { name } if switched(name))
    }

    /// What to do to have malloc in its place; `None` where there is nothing.
    #[must_use]
    pub fn way_on(&self) -> Option<String> {
        let way = match self {
            Self::Runtime { name } if name.starts_with("PHP") => {
                "USE_ZEND_ALLOC=0 in its environment (--env) gives PHP's memory to malloc"
            }
            Self::Runtime { name } if name.starts_with("CPython") => {
                "PYTHONMALLOC=malloc in its environment (--env) gives Python's objects to malloc"
            }
            Self::Runtime { name } if name.starts_with("JVM") => {
                "the Java heap has no other allocator: its collector and -Xmx decide, malloc serves the rest"
            }
            Self::Runtime { name } if name.starts_with("V8") => {
                "JavaScript objects have no other allocator: --max-semi-space-size and --max-old-space-size decide, \
                 malloc serves buffers and the rest"
            }
            Self::Runtime { .. } => "the runtime's own settings decide on its heap, not malloc",
            Self::Embedded { name, object } => {
                return Some(format!(
                    "build {object} without its own {name}, so that it calls malloc, or compare builds of it"
                ));
            }
            Self::Object { .. }
            | Self::Malloc
            | Self::Unknown
            | Self::Stacks
            | Self::Variables
            | Self::Shared => {
                return None;
            }
        };
        Some(way.to_owned())
    }
}

/// Memory of one holder.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Who.
    #[serde(flatten)]
    pub holder: Holder,
    /// How much, over all processes of the server, shared pages divided by their users.
    pub bytes: u64,
}

/// What one request asks of malloc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapUse {
    /// Calls that ask for memory (malloc, calloc, realloc and the aligned ones).
    pub calls: f64,
    /// Bytes asked for.
    pub bytes: f64,
}

/// What malloc is to one candidate, at the end of the pass in which its heap calls are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    /// Per request, by operation (`put`, `get`, `request`).
    pub per_request: BTreeMap<String, HeapUse>,
    /// Private memory by who holds it, the most first; empty where it could not be read.
    pub held: Vec<Held>,
    /// Of what malloc holds: bytes that the program asked for and has not given back; `None` where the samples are too
    /// few to say.
    pub live_bytes: Option<u64>,
    /// Resident pages of files, shared pages divided by their users.
    pub file_bytes: u64,
    /// Mappings that could not be noted with who made them.
    pub unnoted: u64,
}

impl Reach {
    /// All private memory.
    #[must_use]
    pub fn private_bytes(&self) -> u64 {
        self.held.iter().map(|one| one.bytes).sum()
    }

    /// What malloc holds of it.
    #[must_use]
    pub fn malloc_bytes(&self) -> u64 {
        self.sum_of(|holder| *holder == Holder::Malloc)
    }

    fn sum_of(&self, is_meant: impl Fn(&Holder) -> bool) -> u64 {
        let meant = self.held.iter().filter(|one| is_meant(&one.holder));
        meant.map(|one| one.bytes).sum()
    }

    /// Most heap calls of an operation per request.
    fn calls(&self) -> Option<f64> {
        self.per_request
            .values()
            .map(|one| one.calls)
            .reduce(f64::max)
    }

    /// Whether requests make so few heap calls that an allocator cannot show in their speed.
    #[must_use]
    pub fn has_few_calls(&self) -> bool {
        self.calls().is_some_and(|calls| calls < CALLS_MIN)
    }

    /// Whether nothing of the server's heap gets to malloc: next to no calls, and most of what heaps hold is in another.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        let elsewhere = self.sum_of(Holder::is_other_heap);
        self.has_few_calls() && elsewhere > 0 && elsewhere >= self.malloc_bytes()
    }

    /// The largest heap that is not malloc's.
    fn other_heap(&self) -> Option<&Held> {
        let others = self.held.iter().filter(|one| one.holder.is_other_heap());
        others.max_by_key(|one| one.bytes)
    }

    /// Why there is nothing to compare, and the way on.
    #[must_use]
    pub fn refusal(&self) -> String {
        let calls = format_count(self.calls().unwrap_or(0.0));
        let Some(other) = self.other_heap() else {
            return String::new();
        };
        let (bytes, label) = (format_bytes(other.bytes as f64), other.holder.label());
        let way = other.holder.way_on().unwrap_or_else(|| {
            "let the program call malloc, or compare builds of it with different allocators"
                .to_owned()
        });
        format!(
            "no allocator can change this server: a request makes {calls} calls of malloc, and {bytes} of its memory is \
             not malloc's ({label}); {way}"
        )
    }

    /// What an allocator can change in a request, where memory is another question's answer; `None` if nothing is known.
    #[must_use]
    pub fn request_sentence(&self) -> Option<String> {
        self.use_sentence()
    }

    /// What an allocator can change here, in sentences; the first lines of a report.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = [
            self.use_sentence(),
            self.memory_sentence(),
            self.rest_sentence(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let total = self.private_bytes().max(1) as f64;
        let large = self.held.iter().filter(|one| {
            // A small heap of a runtime may serve nearly all that a request asks for.
            let share = if one.holder.has_switch() {
                SHARE_MIN
            } else {
                SHARE_MUCH
            };
            one.bytes as f64 >= share * total
        });
        sentences.extend(large.filter_map(|one| {
            let mut way = one.holder.way_on()?;
            if let Some(first) = way.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            Some(format!("{way}."))
        }));
        sentences
    }

    fn use_sentence(&self) -> Option<String> {
        let of_each = Operation::ALL.into_iter().filter_map(|operation| {
            let heap = self.per_request.get(operation.key())?;
            let name = match operation {
                Operation::Request => "request",
                other => other.label(),
            };
            let (calls, bytes) = (format_count(heap.calls), format_bytes(heap.bytes));
            Some(format!("{calls} heap calls and {bytes} for each {name}"))
        });
        let of_each: Vec<String> = of_each.collect();
        if of_each.is_empty() {
            return None;
        }
        let mut sentence = format!("What an allocator can change here: {}", of_each.join(", "));
        if self.has_few_calls() {
            sentence += " get to malloc, so next to nothing of a request's time is an allocator's";
        }
        Some(sentence + ".")
    }

    fn memory_sentence(&self) -> Option<String> {
        let (total, malloc) = (self.private_bytes(), self.malloc_bytes());
        if total == 0 {
            return None;
        }
        let share = |bytes: u64| format!("{:.0} %", bytes as f64 / total as f64 * 100.0);
        let mut sentence = format!(
            "malloc holds {} of {} of anonymous memory ({})",
            format_bytes(malloc as f64),
            format_bytes(total as f64),
            share(malloc)
        );
        // An estimate from samples may exceed what there is.
        if let Some(live) = self.live_bytes.map(|live| live.min(malloc)) {
            let most = malloc.saturating_sub(live);
            sentence += &format!(
                "; {} of it is in use, so no allocator can save more than {} ({})",
                format_bytes(live as f64),
                format_bytes(most as f64),
                share(most)
            );
        }
        Some(sentence + ".")
    }

    fn rest_sentence(&self) -> Option<String> {
        let total = self.private_bytes() as f64;
        let rest = self
            .held
            .iter()
            .filter(|one| one.holder != Holder::Malloc && one.bytes as f64 >= SHARE_MIN * total);
        let rest: Vec<String> = rest
            .map(|one| format!("{} {}", one.holder.label(), format_bytes(one.bytes as f64)))
            .collect();
        (!rest.is_empty()).then(|| format!("The rest of it: {}.", rest.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn reach(calls: f64, held: &[(Holder, u64)], live_bytes: Option<u64>) -> Reach {
        let held = held.iter().map(|(holder, mib)| Held {
            holder: holder.clone(),
            bytes: mib * MIB,
        });
        let heap = HeapUse {
            calls,
            bytes: calls * 64.0,
        };
        Reach {
            per_request: [("request".to_owned(), heap)].into(),
            held: held.collect(),
            live_bytes,
            ..Reach::default()
        }
    }

    /// PHP made 13 heap calls for a request whose script made thousands, and nothing said how to see them.
    ///
    /// Goal: where a variable gives a runtime's memory to malloc, it is said however small that heap is.
    #[test]
    fn a_switch_is_named_for_a_small_heap_too() {
        let name = "PHP (Zend heap)".to_owned();
        let held = [(Holder::Malloc, 90), (Holder::Runtime { name }, 10)];
        let said = reach(13.0, &held, None).sentences().join(" ");
        assert!(said.contains("USE_ZEND_ALLOC=0"), "{said}");
    }

    /// Goal: a report says first what malloc has to do with the server, and how much there is to win.
    #[test]
    fn a_report_begins_with_what_can_change() {
        let server = reach(
            14.0,
            &[(Holder::Malloc, 40), (Holder::Stacks, 10)],
            Some(30 * MIB),
        );
        let sentences = server.sentences();
        assert_eq!(
            sentences,
            [
                "What an allocator can change here: 14.0 heap calls and 896 B for each request.",
                "malloc holds 40.0 MiB of 50.0 MiB of anonymous memory (80 %); 30.0 MiB of it is in use, so no allocator can \
                 save more than 10.0 MiB (20 %).",
                "The rest of it: stacks 10.0 MiB.",
            ]
        );
        assert!(!server.is_elsewhere());
        let full = reach(14.0, &[(Holder::Malloc, 4)], Some(5 * MIB)).sentences();
        assert!(full[1].contains("4.00 MiB of it is in use"), "{full:?}");
    }

    /// A server with an allocator of its own was "proved" to run under every candidate, and called worse under some.
    ///
    /// Goal: it is refused with the way on; a program that hardly allocates is not, nor is one with two heaps.
    #[test]
    fn what_malloc_never_sees_is_refused() {
        let embedded = Holder::Embedded {
            name: "mimalloc".to_owned(),
            object: "server".to_owned(),
        };
        let own = reach(0.0, &[(embedded.clone(), 40), (Holder::Malloc, 1)], None);
        assert!(own.is_elsewhere());
        assert!(
            own.refusal()
                .contains("build server without its own mimalloc"),
            "{}",
            own.refusal()
        );
        let both = reach(3.0, &[(embedded.clone(), 20), (Holder::Malloc, 20)], None);
        assert!(!both.is_elsewhere());
        let way = both.sentences().pop().unwrap();
        assert!(way.starts_with("Build server without"), "{way}");
        let pools = reach(
            0.01,
            &[
                (Holder::Malloc, 20),
                (
                    Holder::Object {
                        object: "server".to_owned(),
                    },
                    2,
                ),
            ],
            None,
        );
        assert!(!pools.is_elsewhere());
        assert!(
            pools.sentences()[0].contains("next to nothing"),
            "{:?}",
            pools.sentences()
        );
        assert!(!Reach::default().is_elsewhere() && Reach::default().sentences().is_empty());
    }

    /// Goal: what is written is read again.
    #[test]
    fn records_are_read_again() {
        let php = Holder::Runtime {
            name: "PHP (Zend)".to_owned(),
        };
        let before = reach(2.0, &[(php, 3), (Holder::Malloc, 1)], Some(MIB));
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Reach>(&text).unwrap(), before);
        assert!(
            before
                .sentences()
                .iter()
                .any(|line| line.contains("USE_ZEND_ALLOC=0"))
        );
    }
}
