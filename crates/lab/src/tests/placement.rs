use super::*;

#[test]
fn cpus_are_divided() {
    let divide = |count: usize| {
        let placement = Placement::divide(&(0..count).collect::<Vec<_>>());
        (placement.server.len(), placement.generator.len())
    };
    assert_eq!([divide(0), divide(1), divide(2)], [(0, 0), (0, 0), (1, 1)]);
    assert_eq!(
        [divide(3), divide(4), divide(16)],
        [(2, 1), (3, 1), (12, 4)]
    );
    let mut placement = Placement::divide(&[2, 5, 7]);
    assert_eq!(placement.describe(), "server 2,5; generator 7");
    assert!(placement.is_apart() && !Placement::divide(&[3]).is_apart());
    placement.is_raised = true;
    let text = placement.describe();
    assert!(text.starts_with("server 2,5; generator 7; both before"));
    placement.generator.push(2);
    assert!(!placement.is_apart());
    let free = Placement::divide(&[0, 1, 2, 3, 4, 5, 6, 7]).without_pins();
    assert_eq!((free.server_threads(), free.generator_threads()), (8, 2));
    assert!(!free.is_apart() && free.server.is_empty());
    assert_eq!(
        free.describe(),
        "not pinned: 8 CPUs for server and generator"
    );
    assert_eq!(
        Placement::divide(&[3]).describe(),
        "server and generator share one CPU"
    );
}
