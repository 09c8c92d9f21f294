use super::*;

const SECOND_NS: u64 = 1_000_000_000;

/// Goal: the first of a kind is logged at once, later ones once a minute with their count, and after a minute without
/// any the next is a first one again.
#[test]
fn what_goes_on_is_told_once_a_minute() {
    let mut event = Repeated::default();
    assert_eq!(event.add(0, 0), None);
    assert_eq!(event.add(3, SECOND_NS), Some(EventNotice::First(3)));
    for second in 2..=60 {
        assert_eq!(event.add(20, second * SECOND_NS), None);
    }
    let more = EventNotice::More {
        count: 59 * 20 + 1,
        seconds: 60,
    };
    assert_eq!(event.add(1, 61 * SECOND_NS), Some(more));
    assert_eq!(event.add(0, 121 * SECOND_NS), None);
    assert_eq!(event.add(1, 122 * SECOND_NS), Some(EventNotice::First(1)));
}

/// Goal: the increase of a count is logged, with the sentence before it, and no count twice.
#[test]
fn a_count_that_grows_is_told() {
    let mut event = CountedEvent::new(LogLevel::Warn, "cut", "readers cut");
    assert_eq!(event.told(0, 0), None);
    let first = event.told(1_200, SECOND_NS).unwrap();
    assert_eq!(first.line(event.sentence), "readers cut: 1,200");
    assert_eq!(event.told(1_200, 2 * SECOND_NS), None);
    assert_eq!(event.told(1_207, 3 * SECOND_NS), None);
    let more = event.told(1_207, 61 * SECOND_NS).unwrap();
    assert_eq!(
        more.line(event.sentence),
        "readers cut: 7 more in the last 60 s"
    );
}

#[test]
fn counts_are_grouped() {
    for (count, text) in [
        (0, "0"),
        (999, "999"),
        (1000, "1,000"),
        (12_345_678, "12,345,678"),
    ] {
        assert_eq!(Grouped(count).to_string(), text);
    }
}

/// Goal: the log's line about a panic names the thread, the place and the reason.
#[test]
fn a_panic_is_said_with_its_place() {
    static SAID: Mutex<String> = Mutex::new(String::new());
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| {
        *SAID.lock().unwrap() = PanicLine(info).to_string();
    }));
    let thread = std::thread::Builder::new().name("worker".to_owned());
    let number = 7;
    let ended = thread
        .spawn(move || panic!("number {number}"))
        .unwrap()
        .join();
    std::panic::set_hook(usual);
    assert!(ended.is_err());
    let said = SAID.lock().unwrap();
    let begin = "thread worker panicked at crates/http/src/tests/log.rs:";
    assert!(
        said.starts_with(begin) && said.contains(": number 7"),
        "{said}"
    );
}

/// Goal: the status is one line with the time, whatever the error says.
#[test]
fn an_error_is_one_line_of_the_status() {
    let status = status_with_error("listening on x", 0, "no room\non the disk\n");
    let expected = "listening on x; last error at 1970-01-01T00:00:00.000Z: no room on the disk";
    assert_eq!(status, expected);
}

/// Goal: whatever stands in a message, a line of JSON is one line and its strings stay closed.
#[test]
fn json_lines_are_escaped() {
    let event = Some(("shed", 7));
    let line = json_line(0, LogLevel::Warn, event, "a \"b\" \\ c\nd\u{1b}[0m é\n");
    let expected = "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warn\",\
        \"event\":\"shed\",\"count\":7,\"message\":\"a \\\"b\\\" \\\\ c\\nd\\u001b[0m é\"}\n";
    assert_eq!(String::from_utf8(line).unwrap(), expected);
}
