//! The few colours of a terminal's text.
//!
//! The named colours of a terminal (green, yellow, dim) are chosen by its theme for one background, and
//! its yellow is next to invisible on white. These come from the fixed part of the table of 256, as
//! bright as is halfway between black and white, so they can be read on both. Nothing is said by colour
//! alone: who sees none finds the same in marks and words.

/// What a colour says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Colour {
    /// Something is better.
    Good,
    /// Something is worse, or wrong.
    Bad,
    /// Something is not to be relied on.
    Doubtful,
    /// Something matters less than what stands around it.
    Quiet,
}

impl Colour {
    const fn index(self) -> u8 {
        match self {
            Self::Good => 28,
            Self::Bad => 160,
            Self::Doubtful => 130,
            Self::Quiet => 243,
        }
    }

    /// `text` in this colour, and what follows in none.
    #[must_use]
    pub fn paint(self, text: &str) -> String {
        format!("\x1b[38;5;{}m{text}\x1b[0m", self.index())
    }
}

#[cfg(test)]
#[path = "tests/colour.rs"]
mod tests;
