use super::*;

/// Goal: a run counts only if each connection was of the kind asked for and brought a response.
#[test]
fn the_text_of_s_time_is_read() {
    let text = |marks: &str| {
        format!(
            "Collecting connection statistics for 1 seconds\n{marks}\n\n3 connections in \
             0.39s; 1335.90 connections/user sec, bytes read 456\n3 connections in 2 real \
             seconds, 152 bytes read per connection\n"
        )
    };
    assert_eq!(handshakes_of(&text("***"), '*'), Some(3.0));
    assert_eq!(handshakes_of(&text("rrr"), 'r'), Some(3.0));
    assert_eq!(handshakes_of(&text("r*r"), 'r'), None);
    assert_eq!(handshakes_of(&text("**"), '*'), None);
    assert_eq!(handshakes_of("", '*'), None);
}

/// Goal: errors of any kind make a run void.
#[test]
fn a_record_with_errors_has_no_requests() {
    let record =
        |errors: u32| format!("{{\"requests\":5,\"errors\":{{\"connect\":0,\"read\":{errors}}}}}");
    assert_eq!(requests_of(&record(0)), Some(5.0));
    assert_eq!(requests_of(&record(1)), None);
    assert_eq!(requests_of("{}"), None);
}
