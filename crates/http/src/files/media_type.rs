//! What a file is, told by the end of its name.
//!
//! Ours, because it is a page long: the types a browser acts upon and those it must not guess.
//! Text is said to be UTF-8, which every editor writes by now.
//!
//! Absent on purpose: looking into files. With `nosniff` an unknown type is offered for download.

use crate::head_text::FieldValue;

/// For a name whose end says nothing.
const UNKNOWN: &str = "application/octet-stream";

/// Longest extension in the table.
const EXTENSION_BYTES_MAX: usize = 11;

/// The media type of a file with this name.
pub(super) fn media_type(relative: &[u8]) -> FieldValue<'static> {
    FieldValue::known(name_of(relative).as_bytes())
}

fn name_of(relative: &[u8]) -> &'static str {
    let name = relative
        .rsplit(|&byte| byte == b'/')
        .next()
        .unwrap_or(relative);
    let Some(dot) = memchr::memrchr(b'.', name).filter(|&dot| dot > 0) else {
        return UNKNOWN;
    };
    let extension = &name[dot + 1..];
    let mut lower = [0; EXTENSION_BYTES_MAX];
    let Some(lower) = lower.get_mut(..extension.len()) else {
        return UNKNOWN;
    };
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    of_extension(lower)
}

fn of_extension(extension: &[u8]) -> &'static str {
    match extension {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"txt" | b"text" | b"log" => "text/plain; charset=utf-8",
        b"md" | b"markdown" => "text/markdown; charset=utf-8",
        b"csv" => "text/csv; charset=utf-8",
        b"ics" => "text/calendar; charset=utf-8",
        b"vtt" => "text/vtt; charset=utf-8",
        b"json" | b"map" => "application/json",
        b"jsonld" => "application/ld+json",
        b"webmanifest" => "application/manifest+json",
        b"xml" => "application/xml",
        b"xhtml" => "application/xhtml+xml",
        b"rss" => "application/rss+xml",
        b"atom" => "application/atom+xml",
        b"wasm" => "application/wasm",
        b"pdf" => "application/pdf",
        b"rtf" => "application/rtf",
        b"epub" => "application/epub+zip",
        b"zip" => "application/zip",
        b"gz" | b"tgz" => "application/gzip",
        b"bz2" => "application/x-bzip2",
        b"xz" => "application/x-xz",
        b"zst" => "application/zstd",
        b"7z" => "application/x-7z-compressed",
        b"tar" => "application/x-tar",
        b"jar" => "application/java-archive",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"apng" => "image/apng",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"avif" => "image/avif",
        b"ico" => "image/x-icon",
        b"bmp" => "image/bmp",
        b"tif" | b"tiff" => "image/tiff",
        b"jxl" => "image/jxl",
        b"woff" => "font/woff",
        b"woff2" => "font/woff2",
        b"ttf" => "font/ttf",
        b"otf" => "font/otf",
        b"mp3" => "audio/mpeg",
        b"oga" | b"ogg" | b"opus" => "audio/ogg",
        b"wav" => "audio/wav",
        b"flac" => "audio/flac",
        b"m4a" => "audio/mp4",
        b"aac" => "audio/aac",
        b"weba" => "audio/webm",
        b"mp4" | b"m4v" => "video/mp4",
        b"mpeg" => "video/mpeg",
        b"webm" => "video/webm",
        b"ogv" => "video/ogg",
        b"mov" => "video/quicktime",
        b"ts" => "video/mp2t",
        b"m3u8" => "application/vnd.apple.mpegurl",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Goal: the last extension of the last segment decides, in any case; a dot file has none.
    #[test]
    fn the_end_of_the_name_decides() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.css/c.JPEG", "image/jpeg"),
            ("a.html/b", UNKNOWN),
            ("a.tar.gz", "application/gzip"),
            ("site.webmanifest", "application/manifest+json"),
            (".html", UNKNOWN),
            ("a.", UNKNOWN),
            ("a.html ", UNKNOWN),
            ("", UNKNOWN),
            ("a.averylongextension", UNKNOWN),
        ] {
            assert_eq!(
                media_type(name.as_bytes()).as_bytes(),
                expected.as_bytes(),
                "{name}"
            );
        }
        assert_eq!(EXTENSION_BYTES_MAX, "webmanifest".len());
    }

    proptest! {
        /// Goal: any bytes have a type that may stand in a field.
        #[test]
        fn any_name_has_a_type(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            let name = media_type(&name);
            prop_assert_eq!(FieldValue::new(&name), Ok(name));
        }
    }
}
