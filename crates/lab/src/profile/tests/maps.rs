use super::*;

#[test]
fn maps_are_read() {
    let line = "1000-2000 r-xp 00003000 fe:00 11                  /usr/bin/my prog (deleted)";
    let code = parse(line).unwrap();
    assert_eq!(
        (code.start, code.end, code.file_offset),
        (0x1000, 0x2000, 0x3000)
    );
    assert_eq!(code.file, Some(PathBuf::from("/usr/bin/my prog")));
    assert_eq!(parse("1000-2000 r--p 00000000 fe:00 11  /bin/x"), None);
    let generated = parse("1000-2000 rwxp 00000000 00:00 0 ").unwrap();
    assert_eq!(generated.file, None);
    assert!(
        parse("1000-2000 r-xp 0 00:00 0   [anon:v8]")
            .unwrap()
            .file
            .is_none()
    );
}

/// Goal: code of this very process is found in its file, and the address of a process that was
/// never seen is searched in its relatives.
#[test]
fn addresses_have_places() {
    let own = std::process::id();
    let mut maps = Maps::default();
    maps.capture(&[own]);
    let program = fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
    let address = maps_are_read as fn() as usize as u64;
    assert!(
        matches!(maps.place(own, &[], address), CodeLocation::File(file, _) if *file == program)
    );
    assert_eq!(
        maps.place(0, &[own], address),
        maps.place(own, &[], address)
    );
    assert_eq!(maps.place(own, &[], 8), CodeLocation::Nowhere);
    assert_eq!(maps.place(0, &[], address), CodeLocation::Nowhere);
    assert_eq!(maps.name(0, &[]), "[ended]");
}
