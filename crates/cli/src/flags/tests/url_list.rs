use super::*;

#[test]
fn lines_have_weights_and_methods() {
    let base = Url::parse("http://a:81/x").unwrap();
    let line = |text: &str| UrlLine::parse(text, Some(&base)).unwrap();
    assert_eq!(line("http://b/c").url.authority, "b:80");
    let path = line("3 POST /c?d=e");
    assert_eq!((path.weight, path.method), (3, Some(Method::Post)));
    assert_eq!(
        (&path.url.authority[..], &path.url.path[..]),
        ("a:81", "/c?d=e")
    );
    assert_eq!(path.name, "POST /c?d=e");
    assert_eq!(line("PUT 7 /c").weight, 7);
    for text in ["x http://b/", "GET POST /c", "/a /b", "ftp://b/", ""] {
        assert!(UrlLine::parse(text, Some(&base)).is_err(), "{text}");
    }
    assert!(UrlLine::parse("/c", None).unwrap_err().contains("besides"));
}
