# A WSGI application that answers in every framing there is.


def app(environment, start):
    body = environment["wsgi.input"].read()
    path = environment["PATH_INFO"]
    if path == "/big":
        start("200 OK", [("Content-Length", str(1 << 20))])
        return [b"x" * (1 << 20)]
    if path == "/parts":
        start("200 OK", [])
        return [b"a", b"b"]
    if path == "/204":
        start("204 No Content", [])
        return []
    words = (environment["REQUEST_METHOD"], environment["QUERY_STRING"], len(body))
    whole = ("%s %s %d " % words).encode() + body
    start("200 OK", [("Content-Length", str(len(whole)))])
    return [whole]
