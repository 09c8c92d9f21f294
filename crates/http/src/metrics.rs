//! `/metrics`: Prometheus text of one server, all shards.
use millpond_mempool::{BlockPool, Buffer, PoolError};
use std::fmt::Display;

/// Prometheus text being written, into pooled memory.
pub struct MetricsText<'a> {
    out: Buffer,
    blocks: &'a BlockPool,
    error: Option<PoolError>,
}

impl<'a> MetricsText<'a> {
    pub(crate) fn new(blocks: &'a BlockPool) -> Self {
        Self {
            out: Buffer::new(),
            blocks,
            error: None,
        }
    }

    pub(crate) fn finish(self) -> Result<Buffer, PoolError> {
        self.error.map_or(Ok(self.out), Err)
    }

    /// Begins a metric: its help and type lines. `kind` is `counter` or `gauge`.
    pub fn describe(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One sample. Label values are escaped.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.write(format_args!("{name}"));
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{label}=\"{}\"", Escaped(*text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{end} {value}\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // The error is kept and reported by `finish`.
        let _ = std::fmt::Write::write_fmt(self, text);
    }
}

impl std::fmt::Write for MetricsText<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.out
            .extend_from_slice(self.blocks, text.as_bytes())
            .map_err(|error| {
                self.error = Some(error);
                std::fmt::Error
            })
    }
}

/// A label value with backslash, quote and line feed escaped.
struct Escaped<'a>(&'a dyn Display);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        struct Escaper<'f, 'g>(&'f mut std::fmt::Formatter<'g>);
        impl std::fmt::Write for Escaper<'_, '_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                text.chars().try_for_each(|c| match c {
                    '\\' => self.0.write_str("\\\\"),
                    '"' => self.0.write_str("\\\""),
                    '\n' => self.0.write_str("\\n"),
                    c => self.0.write_char(c),
                })
            }
        }
        use std::fmt::Write as _;
        write!(Escaper(f), "{}", self.0)
    }
}
