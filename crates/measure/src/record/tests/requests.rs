use super::*;

fn request(method: &str, path: &str, weight: u64, body_bytes: Option<u64>) -> SentRequest {
    SentRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        weight,
        fields: Vec::new(),
        body_bytes,
    }
}

/// Goal: a person reads what was sent: methods, paths and weights, bodies, the script, TLS and the socket.
#[test]
fn requests_are_named() {
    let mut sent = SentRequests {
        requests: vec![request("GET", "/a", 1, Some(0))],
        ..SentRequests::default()
    };
    assert_eq!(sent.to_string(), "GET /a");
    sent.requests.push(request("POST", "/b", 3, Some(12)));
    sent.requests.push(request("PUT", "/c", 1, None));
    assert_eq!(
        sent.to_string(),
        "GET /a (weight 1), POST /b with a body of 12 bytes (weight 3), PUT /c with bodies that differ (weight 1)"
    );
    sent.requests.resize(7, request("GET", "/d", 1, Some(0)));
    assert!(sent.to_string().ends_with("GET /d (weight 1) and 3 more"));
    sent.script = Some(SentScript {
        file: "post.lua".to_owned(),
        sha256: "0123456789abcdef".to_owned(),
        args: Vec::new(),
    });
    sent.tls = Some(SentTls {
        version: Some("TLS 1.3".to_owned()),
        is_verified: false,
    });
    sent.unix = Some("/run/x".to_owned());
    assert_eq!(
        sent.to_string(),
        "made by the script post.lua (SHA-256 0123456789ab...); TLS 1.3, certificate not verified; over the unix \
         socket /run/x"
    );
}
