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

/// Goal: the text after it has no colour.
#[test]
fn paint_ends() {
    assert_eq!(Colour::Bad.paint("x"), "\x1b[38;5;160mx\x1b[0m");
}
