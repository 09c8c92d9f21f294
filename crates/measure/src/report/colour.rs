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
mod tests {
    use super::*;

    /// The brightness of a colour of the table, as WCAG 2 computes it.
    fn luminance(index: u8) -> f64 {
        let levels = match index {
            232.. => [8 + 10 * (index - 232); 3],
            _ => {
                let of = |place: u8| [0, 95, 135, 175, 215, 255][usize::from(place % 6)];
                let cube = index - 16;
                [of(cube / 36), of(cube / 6), of(cube)]
            }
        };
        let [red, green, blue] = levels.map(|level| {
            let share = f64::from(level) / 255.0;
            match share <= 0.040_45 {
                true => share / 12.92,
                false => ((share + 0.055) / 1.055).powf(2.4),
            }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// Goal: each colour can be read on black and on white: WCAG asks for a contrast of 3 with large text,
    /// 4.5 with small, and no colour has more than 4.58 with both.
    #[test]
    fn colours_can_be_read_on_black_and_on_white() {
        for colour in [Colour::Good, Colour::Bad, Colour::Doubtful, Colour::Quiet] {
            let luminance = luminance(colour.index());
            let (on_black, on_white) = ((luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05));
            assert!(
                on_black > 3.8 && on_white > 3.8,
                "{colour:?}: {on_black} on black, {on_white} on white"
            );
        }
    }

    /// Goal: what follows has no colour.
    #[test]
    fn paint_ends() {
        assert_eq!(Colour::Bad.paint("x"), "\x1b[38;5;160mx\x1b[0m");
    }
}
