//! The Prometheus text format, written into pooled memory.

use millpond_mempool::{BlockPool, Buffer, PoolError};
use std::fmt::{self, Display, Write};

/// Prometheus text being written.
pub struct MetricsText<'a> {
    out: Buffer,
    blocks: &'a BlockPool,
    error: Option<PoolError>,
}

impl fmt::Debug for MetricsText<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MetricsText")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
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

    fn write(&mut self, text: fmt::Arguments<'_>) {
        // The cause is kept in `error`, which `finish` returns.
        let _ = self.write_fmt(text);
    }
}

impl Write for MetricsText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out
            .extend_from_slice(self.blocks, text.as_bytes())
            .map_err(|error| {
                self.error = Some(error);
                fmt::Error
            })
    }
}

/// A label value with backslash, quote and line feed escaped.
struct Escaped<'a>(&'a dyn Display);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'f, 'g>(&'f mut fmt::Formatter<'g>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '\\' => self.0.write_str("\\\\"),
            '"' => self.0.write_str("\\\""),
            '\n' => self.0.write_str("\\n"),
            character => self.0.write_char(character),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_mempool::PoolMode;

    /// Goal: a label cannot break out of its quotes, and a sample without labels has no braces.
    #[test]
    fn labels_are_escaped() {
        let blocks = BlockPool::new("test", PoolMode::On);
        let mut text = MetricsText::new(&blocks);
        text.describe("m_total", "counter", "Things.");
        text.sample("m_total", &[("a", &"x\"\\\n"), ("b", &7)], 1);
        text.sample("m_total", &[], 2.5);
        let expected = "# HELP m_total Things.\n# TYPE m_total counter\n\
                        m_total{a=\"x\\\"\\\\\\n\",b=\"7\"} 1\nm_total 2.5\n";
        assert_eq!(&*text.finish().unwrap(), expected.as_bytes());
    }
}
