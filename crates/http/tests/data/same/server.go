// Answers what server.py answers, by net/http.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func answer(w http.ResponseWriter, r *http.Request) {
	// All of it first: net/http drops what is not read when the answer begins.
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path == "/big":
		io.WriteString(w, strings.Repeat("x", 1<<20))
	case r.URL.Path == "/parts":
		io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		io.WriteString(w, "b")
	case r.URL.Path == "/204":
		w.WriteHeader(204)
	default:
		fmt.Fprintf(w, "%s %s %d ", r.Method, r.URL.RawQuery, len(body))
		w.Write(body)
	}
}

func main() {
	http.HandleFunc("/", answer)
	fmt.Println(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
