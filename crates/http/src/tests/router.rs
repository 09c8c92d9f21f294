use super::*;

fn router() -> Router<&'static str> {
    let mut router = Router::new();
    for (method, pattern, target) in [
        (Method::Get, "/", "root"),
        (Method::Get, "/users", "list"),
        (Method::Post, "/users", "add"),
        (Method::Get, "/users/me", "me"),
        (Method::Get, "/users/{id}", "user"),
        (Method::Put, "/users/{id}/files/{name}", "file"),
        (Method::Get, "/static/{path...}", "static"),
        (Method::Head, "/users/me", "head of me"),
    ] {
        router.add(method, pattern, target).unwrap();
    }
    router
}

fn route(method: Method, path: &str) -> String {
    match router().route(method, path.as_bytes()) {
        Routed::Found(target, parameters) => {
            let names = ["id", "name", "path"].into_iter();
            let found = names.filter_map(|name| {
                let value = parameters.get(name)?;
                Some(format!(" {name}={}", String::from_utf8_lossy(value)))
            });
            format!("{target}{}", found.collect::<String>())
        }
        Routed::WrongMethod => "405".to_owned(),
        Routed::NotFound => "404".to_owned(),
    }
}

/// Goal: literals, parameters and rests match what they should and nothing else; the first
/// route wins; HEAD falls back to GET.
#[test]
fn paths_find_their_routes() {
    use Method::{Delete, Get, Head, Post, Put};
    for (method, path, expected) in [
        (Get, "/", "root"),
        (Get, "/users", "list"),
        (Post, "/users", "add"),
        (Delete, "/users", "405"),
        (Get, "/users/", "404"),
        (Get, "/users/me", "me"),
        (Get, "/users/7", "user id=7"),
        (Get, "/users/%2F", "user id=%2F"),
        (Head, "/users/7", "user id=7"),
        (Head, "/users/me", "head of me"),
        (Put, "/users/7/files/a.txt", "file id=7 name=a.txt"),
        (Put, "/users/7/files/a/b", "404"),
        (Put, "/users//files/a", "404"),
        (Get, "/static/", "static path="),
        (Get, "/static", "static path="),
        (Get, "/static/css/a.css", "static path=css/a.css"),
        (Get, "/statics", "404"),
        (Get, "*", "404"),
        (Get, "", "404"),
    ] {
        assert_eq!(route(method, path), expected, "{method:?} {path}");
    }
    let router = router();
    let allowed: Vec<Method> = router.allowed(b"/users").collect();
    assert_eq!(allowed, [Get, Post]);
}

/// Goal: a pattern that cannot work is refused with what to write.
#[test]
fn impossible_patterns_are_refused() {
    let mut router = Router::new();
    for pattern in ["users", "/{a...}/b", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}"] {
        let error = router.add(Method::Get, pattern, ()).unwrap_err();
        assert!(error.to_string().contains(pattern), "{error}");
    }
}
