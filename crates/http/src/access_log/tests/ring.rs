use super::*;

fn header(number: u64) -> Header {
    let mut header = [number; HEADER_WORDS];
    header[HEADER_WORDS - LENGTH_WORDS..].fill(0);
    header
}

/// Goal: texts of every length around a word come out as they went in, also where the ring
/// begins again, and one text never shows bytes of another.
#[test]
fn records_come_out_whole() {
    let (mut writer, mut reader) = ring(1);
    let mut record = Record::default();
    for round in 0..2000_usize {
        let text = |index: usize| vec![(round + index) as u8; (round * 7 + index * 5) % 41];
        let texts: [_; TEXTS] = std::array::from_fn(text);
        assert!(writer.push(&header(round as u64), texts.each_ref().map(Vec::as_slice)));
        assert!(reader.pop(&mut record));
        assert_eq!(record.header[..3], [round as u64; 3]);
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(record.text(index), text);
        }
        assert!(!reader.pop(&mut record));
    }
}

/// Goal: a full ring refuses and keeps what it has; each record taken out makes room for one.
#[test]
fn a_full_ring_refuses() {
    let (mut writer, mut reader) = ring(1);
    const WORDS: u64 = HEADER_WORDS as u64 + 1000 / 8;
    let text = [7_u8; 1000];
    let mut pushed: u64 = 0;
    while writer.push(&header(pushed), [&text, &[], &[], &[], &[], &[]]) {
        assert_eq!(writer.is_crowded(), (pushed + 1) * WORDS > 512, "{pushed}");
        pushed += 1;
    }
    assert_eq!(pushed, 1024 / WORDS);
    assert!(!writer.push(&header(99), [&text, &[], &[], &[], &[], &[]]));
    let mut record = Record::default();
    for expected in 0..pushed {
        assert!(reader.pop(&mut record));
        assert_eq!(record.header[0], expected);
        assert!(writer.push(&header(pushed + expected), [&text, &[], &[], &[], &[], &[]]));
    }
    assert!(reader.pop(&mut record));
    assert_eq!(record.header[0], pushed);
}

/// Goal: nothing is lost, doubled or torn between two threads, while one outruns the other.
#[test]
fn two_threads_agree() {
    const COUNT: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let (mut writer, mut reader) = ring(1);
    let pushing = std::thread::spawn(move || {
        for number in 0..COUNT {
            let text = [number as u8; 50];
            let text = &text[..number as usize % 50];
            while !writer.push(&header(number), [text, &[], text, &[], &[], text]) {
                std::thread::yield_now();
            }
        }
    });
    let mut record = Record::default();
    for number in 0..COUNT {
        while !reader.pop(&mut record) {
            std::thread::yield_now();
        }
        let text = [number as u8; 50];
        assert_eq!(record.header[..8], [number; 8]);
        assert_eq!(record.text(0), &text[..number as usize % 50]);
        assert_eq!(record.text(2), record.text(0));
        assert_eq!(record.text(5), record.text(0));
    }
    pushing.join().unwrap();
}
