//! Reads a licence expression (SPDX): names joined by AND, OR and parentheses.
//!
//! Also the older `MIT/Apache-2.0`, which some crates still carry, meaning OR.

/// Whether the expression can be met with allowed licences only. Anything unreadable cannot.
pub(super) fn allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader {
        words: &words,
        next: 0,
        allowed,
    };
    reader.any() == Some(true) && reader.next == words.len()
}

/// Recursive descent; `None` is a malformed expression.
struct Reader<'a> {
    words: &'a [&'a str],
    next: usize,
    allowed: &'a [String],
}

impl Reader<'_> {
    fn accept(&mut self, word: &str) -> bool {
        let here = self.words.get(self.next) == Some(&word);
        self.next += usize::from(here);
        here
    }

    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.accept("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.accept("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.accept("(") {
            let met = self.any()?;
            return self.accept(")").then_some(met);
        }
        let mut name = (*self.words.get(self.next)?).to_owned();
        self.next += 1;
        if self.accept("WITH") {
            name = format!("{name} WITH {}", self.words.get(self.next)?);
            self.next += 1;
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: precedence, parentheses, exceptions and the old slash are read as the standard says;
    /// what cannot be read is refused.
    #[test]
    fn expressions_are_decided() {
        let list = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0-only", true),
            ("GPL-3.0-only/MIT", true),
            ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
            ("MIT AND GPL-3.0-only OR Unicode-3.0", true),
            ("MIT AND (GPL-3.0-only OR Apache-2.0)", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("", false),
            ("(MIT", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(allowed(expression, &list), expected, "{expression}");
        }
    }
}
