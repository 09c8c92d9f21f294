use super::*;

fn methods(text: &str) -> Result<Vec<Method>, String> {
    let mut methods = Vec::new();
    split(text.as_bytes(), Look::Close, &mut methods).map_err(|error| error.to_string())?;
    Ok(methods)
}

#[test]
fn every_request_of_a_string_is_found() {
    let get = "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n";
    let post = "POST / HTTP/1.1\r\ncontent-LENGTH:  18\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let chunked = "PUT / HTTP/1.0\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n\
                   A;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";
    let head = "HEAD / HTTP/1.1\nTE: trailers\nCookie: c\n\n";
    let own = "BREW /pot HTTP/1.1\r\n\r\n";
    let all = format!("{get}{post}\r\n{chunked}{head}{own}\r\n");
    assert_eq!(
        methods(&all),
        Ok(vec![
            Method::Get,
            Method::Post,
            Method::Put,
            Method::Head,
            Method::Extension
        ])
    );
}

/// Goal: a batch that would leave a connection waiting forever is refused, with its place.
#[test]
fn what_is_not_whole_is_refused_with_its_place() {
    for (text, part) in [
        ("", "incomplete request at 1:1"),
        ("GET / HTTP/1.1\r\nHost: x\r\n", "incomplete request at 3:1"),
        (
            "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcd",
            "incomplete request at 4:5",
        ),
        (
            "\r\nGET /\r\n\r\n",
            "no request line, which is METHOD PATH HTTP/1.1 at 2:1",
        ),
        (" / HTTP/1.1\r\n\r\n", "no request line"),
        ("GET  HTTP/1.1\r\n\r\n", "no request line"),
        (
            "GET / HTTP/1.1\r\nnonsense\r\n\r\n",
            "no header field, which is Name: value at 2:1",
        ),
        (
            "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            "no number at 2:1",
        ),
        (
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "size of a chunk at 4:1",
        ),
        (
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "longer than its size",
        ),
        ("GET / HTTP/1.1\r\n\r\nx", "incomplete request at 3:2"),
    ] {
        let error = methods(text).unwrap_err();
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn a_connection_has_room_for_so_many() {
    let get = "GET / HTTP/1.1\r\n\r\n";
    assert_eq!(
        methods(&get.repeat(PIPELINE_MAX)).unwrap().len(),
        PIPELINE_MAX
    );
    let error = methods(&get.repeat(PIPELINE_MAX + 1)).unwrap_err();
    assert!(error.contains("more than 1024"), "{error}");
}
