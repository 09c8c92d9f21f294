//! Rivals take turns, so that a machine that slows down slows both.

use std::fmt::Display;

/// Runs `first` and `second` `count` times, A B, B A, ...; one tuple for each pair.
pub(super) fn interleave<T: Display>(
    count: usize,
    names: [&str; 2],
    mut first: impl FnMut() -> Result<T, String>,
    mut second: impl FnMut() -> Result<T, String>,
) -> Result<Vec<(T, T)>, String> {
    let mut pairs = Vec::new();
    for number in 0..count {
        let pair = if number % 2 == 0 {
            let one = first()?;
            (one, second()?)
        } else {
            let other = second()?;
            (first()?, other)
        };
        let [one, other] = names;
        println!("pair {}: {one} {}; {other} {}", number + 1, pair.0, pair.1);
        pairs.push(pair);
    }
    Ok(pairs)
}
