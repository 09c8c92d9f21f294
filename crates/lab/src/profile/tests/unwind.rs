use super::*;

/// Goal: the user's choice is obeyed; without one, a program without frame pointers, and a file
/// that says nothing, get the way that always works.
#[test]
fn the_way_fits_the_program() {
    let own = std::env::current_exe().unwrap();
    assert_eq!(Unwind::Auto.choose(&own).0, Unwind::Dwarf);
    assert_eq!(Unwind::Auto.choose(Path::new("/nowhere")).0, Unwind::Dwarf);
    let (way, why) = Unwind::FramePointers.choose(&own);
    assert_eq!(way, Unwind::FramePointers);
    assert!(why.contains("as asked for"), "{why}");
    assert_eq!("fp".parse(), Ok(Unwind::FramePointers));
    assert!("lbr".parse::<Unwind>().is_err());
}
