//! Tables of byte strings as text files, so that a table reads like what it holds.

/// One entry: `== name`, then lines `key: value`, then bytes up to an empty line.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    keys: Vec<(String, String)>,
    pub(crate) bytes: Vec<u8>,
}

impl Entry {
    pub(crate) fn value(&self, key: &str) -> &str {
        let found = self.keys.iter().find(|(known, _)| known == key);
        &found
            .unwrap_or_else(|| panic!("{}: there is no line {key}:", self.name))
            .1
    }
}

/// All entries of a table whose entries have these keys, in this order. Any other line panics.
pub(crate) fn entries(text: &str, keys: &[&str]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let name = line
            .strip_prefix("== ")
            .unwrap_or_else(|| panic!("no entry: {line}"));
        let values = keys.iter().map(|key| {
            let line = lines.next().unwrap_or_default();
            let value = line
                .strip_prefix(key)
                .and_then(|rest| rest.strip_prefix(": "));
            let value = value.unwrap_or_else(|| panic!("{name}: no line {key}: but {line}"));
            ((*key).to_owned(), value.to_owned())
        });
        let keys = values.collect();
        let bytes: String = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        entries.push(Entry {
            name: name.to_owned(),
            keys,
            bytes: unescaped(bytes.as_bytes()),
        });
    }
    entries
}

/// `\r \n \t \0 \\ \xNN` stand for bytes, `\<TEXT*N>` for N times TEXT.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (letter, tail) = rest.split_first().expect("a lone backslash at the end");
        rest = tail;
        match letter {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'0' => bytes.push(0),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &rest[2..];
            }
            b'<' => {
                let end = rest
                    .iter()
                    .position(|&byte| byte == b'>')
                    .expect("no > behind \\<");
                let star = rest[..end]
                    .iter()
                    .rposition(|&byte| byte == b'*')
                    .expect("no *");
                let count = std::str::from_utf8(&rest[star + 1..end]).unwrap();
                bytes.extend(unescaped(&rest[..star]).repeat(count.parse().unwrap()));
                rest = &rest[end + 1..];
            }
            other => panic!("unknown escape \\{}", *other as char),
        }
    }
    bytes
}

/// Goal: a table documents its format.
#[test]
fn tables_are_read() {
    let text = "# c\n== a b\nwhy: x: y\nG\\r\\n\n H\\x00\\0\\\\\\<a\\t*2>\n\n== c\nwhy: z\nI\n";
    let found = entries(text, &["why"]);
    assert_eq!(
        (found[0].name.as_str(), found[0].value("why")),
        ("a b", "x: y")
    );
    assert_eq!(found[0].bytes, b"G\r\n H\0\0\\a\ta\t");
    assert_eq!((found.len(), found[1].bytes.as_slice()), (2, &b"I"[..]));
}
