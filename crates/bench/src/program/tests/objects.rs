use super::*;
use crate::memory::Malloc;

/// Goal: names are as they were, and the vector grows as often as it did.
#[test]
fn it_is_the_earlier_program() {
    for (number, text) in [
        (0, "Child0"),
        (9, "Child9"),
        (10, "Child10"),
        (69, "Child69"),
    ] {
        let name = Name::of_child(number);
        assert_eq!(&name.bytes[..name.len as usize], text.as_bytes());
    }
    let (mut values, mut growths) = (Vec::new(), 0);
    for number in 0..OBJECT_COUNT {
        let capacity = values.capacity();
        push(&mut values, number);
        growths += u32::from(values.capacity() > capacity);
    }
    assert_eq!((growths, values.capacity()), (8, 128));
    assert!(values.into_iter().eq(0..OBJECT_COUNT));
}

/// Goal: the objects are the same wherever they lie, and the sum is that of their parts.
#[test]
fn the_sum_does_not_depend_on_the_memory() {
    let of_one = |number: u32| {
        let name = format!("Child{number}");
        let last = name.as_bytes().last().copied().unwrap_or_default();
        u64::from(number) + name.len() as u64 + u64::from(last)
    };
    let expected: u64 = (0..OBJECT_COUNT).map(of_one).sum();
    assert_eq!(pass(&mut Malloc, &mut Vec::new()), expected);
    assert_eq!(pass(&mut placed(), &mut Vec::new()), expected);
}
