use super::*;

/// Goal: rows come in the order of writing, and what was not stamped is empty.
#[test]
fn rows_are_in_order() {
    let row = |written_unix_ns, kernel_service_ns| Row {
        written_unix_ns,
        slip_ns: 1,
        connect_ns: 2,
        waiting_ns: 3,
        service_ns: 4,
        kernel_service_ns,
    };
    assert_eq!(
        requests_text(vec![row(9, None), row(8, Some(5))]),
        "written_unix_ns,slip_ns,connect_ns,waiting_ns,service_ns,kernel_service_ns\n\
         8,1,2,3,4,5\n\
         9,1,2,3,4,\n"
    );
}
