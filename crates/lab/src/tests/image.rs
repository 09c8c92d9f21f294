use super::*;

/// Goal: names with blanks, other inodes and anonymous memory do not confuse.
#[test]
fn maps_are_read() {
    let line = "55d1-55d2 r-xp 00001000 fe:00 11                  /usr/bin/my prog";
    let mapping = parse(line).unwrap();
    assert_eq!((mapping.start, mapping.end), (0x55d1, 0x55d2));
    assert_eq!((mapping.file_offset, mapping.inode), (0x1000, 11));
    assert!(mapping.is_code && mapping.file == Path::new("/usr/bin/my prog"));
    assert_eq!(parse("7f00-7f01 rw-p 00000000 00:00 0 "), None);
    assert_eq!(
        parse("7ffc-7ffd r-xp 00000000 00:00 0          [vdso]"),
        None
    );
}

/// Goal: a word of this very process is read from outside as it is, text up to its end, and
/// nothing where nothing is.
#[test]
fn own_memory_is_read() {
    let own = i32::try_from(std::process::id()).unwrap();
    let image = Image::open(own).unwrap();
    let word = Box::new(0x1234_5678_9abc_def0_u64);
    assert_eq!(image.word(&raw const *word as u64), Some(*word));
    let text = format!("{}\0beyond", "x".repeat(1000)).into_bytes();
    let found = image.text(text.as_ptr() as u64, 4096).unwrap();
    assert_eq!(found, "x".repeat(1000).into_bytes());
    assert_eq!(image.word(8), None);
    let program = fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
    let objects = image.objects();
    let own = objects.iter().find(|one| one.mapping.file == program);
    assert!(own.is_some_and(|own| own.readable.is_file()), "{objects:?}");
    assert_eq!(
        image.file_at(maps_are_read as fn() as usize as u64),
        Some(program.as_path())
    );
}
