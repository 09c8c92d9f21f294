//! Stacks as a picture: one box per frame, as wide as the samples below it.
//!
//! Absent on purpose: scripts. Pointing at a box shows its full name and share, which every browser
//! does by itself; the file opens anywhere and prints.

use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const FRAME_HEIGHT: f64 = 17.0;
const MARGIN: f64 = 10.0;
const TITLE_HEIGHT: f64 = 32.0;
/// Of a 12 px font in which all letters are as wide.
const LETTER_WIDTH: f64 = 7.2;
/// Narrower boxes cannot be seen.
const BOX_WIDTH_MIN: f64 = 0.3;

/// A frame with all that was called from it.
#[derive(Default)]
struct Frame<'a> {
    samples: u64,
    callees: BTreeMap<&'a str, Frame<'a>>,
}

impl<'a> Frame<'a> {
    fn add(&mut self, stack: &'a str, samples: u64) {
        let mut frame = self;
        frame.samples += samples;
        for name in stack.split(';') {
            frame = frame.callees.entry(name).or_default();
            frame.samples += samples;
        }
    }

    fn depth(&self) -> usize {
        self.callees
            .values()
            .map(|callee| 1 + callee.depth())
            .max()
            .unwrap_or(0)
    }
}

/// Draws stacks (`outer;inner`, samples), the outermost frames on top.
pub(super) fn draw(stacks: &BTreeMap<String, u64>, title: &str) -> String {
    let mut root = Frame::default();
    for (stack, &samples) in stacks {
        root.add(stack, samples);
    }
    let height = TITLE_HEIGHT + FRAME_HEIGHT * root.depth() as f64 + MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fbfaf7\"/>\n\
         <text x=\"{MARGIN}\" y=\"20\" font-size=\"14\">{}, {} samples</text>\n",
        escaped(title),
        root.samples
    );
    let scale = (WIDTH - 2.0 * MARGIN) / root.samples.max(1) as f64;
    draw_callees(&root, MARGIN, TITLE_HEIGHT, scale, root.samples, &mut text);
    text.push_str("</svg>\n");
    text
}

fn draw_callees(frame: &Frame<'_>, left: f64, top: f64, scale: f64, all: u64, text: &mut String) {
    let mut left = left;
    for (name, callee) in &frame.callees {
        let width = callee.samples as f64 * scale;
        if width >= BOX_WIDTH_MIN {
            let share = 100.0 * callee.samples as f64 / all.max(1) as f64;
            let (full, (red, green, blue)) = (escaped(name), colour(name));
            let inner = (width - 0.5).max(BOX_WIDTH_MIN);
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "<g><title>{full}: {} samples, {share:.2} %</title>\
                 <rect x=\"{left:.1}\" y=\"{top}\" width=\"{inner:.1}\" height=\"16\" rx=\"1\" \
                 fill=\"rgb({red},{green},{blue})\"/>",
                callee.samples
            );
            if let Some(label) = label(name, width) {
                let baseline = top + 12.0;
                let _ = write!(
                    text,
                    "<text x=\"{:.1}\" y=\"{baseline}\">{}</text>",
                    left + 2.0,
                    escaped(&label)
                );
            }
            text.push_str("</g>\n");
            draw_callees(callee, left, top + FRAME_HEIGHT, scale, all, text);
        }
        left += width;
    }
}

/// As much of the name as fits; nothing where not even three letters do.
fn label(name: &str, width: f64) -> Option<String> {
    let room = (width / LETTER_WIDTH) as usize;
    if room < 3 {
        return None;
    }
    if name.chars().count() <= room {
        return Some(name.to_owned());
    }
    Some(name.chars().take(room - 2).chain("..".chars()).collect())
}

/// Warm, and the same for the same name.
fn colour(name: &str) -> (u8, u8, u8) {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let part = |shift: u32, span: u64| ((hash >> shift) % span) as u8;
    (205 + part(8, 50), 130 + part(24, 100), 70 + part(40, 60))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a caller is as wide as its callees together, names are escaped, and shares add up.
    #[test]
    fn boxes_are_as_wide_as_their_samples() {
        let stacks = [("a;b<u8>", 3), ("a;c", 1), ("d", 4)];
        let stacks = stacks.map(|(stack, samples)| (stack.to_owned(), samples));
        let picture = draw(&BTreeMap::from(stacks), "test");
        for part in [
            "<title>a: 4 samples, 50.00 %",
            "<title>b&lt;u8&gt;: 3 samples, 37.50 %",
            "<title>d: 4 samples, 50.00 %",
            "8 samples</text>",
        ] {
            assert!(picture.contains(part), "{part} in {picture}");
        }
        let halves = picture.matches("width=\"589.5\"").count();
        assert_eq!(halves, 2, "{picture}");
    }

    #[test]
    fn labels_are_cut() {
        assert_eq!(label("malloc", 100.0).as_deref(), Some("malloc"));
        assert_eq!(label("malloc", 36.0).as_deref(), Some("mal.."));
        assert_eq!(label("malloc", 10.0), None);
    }
}
