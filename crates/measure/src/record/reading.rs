//! A record that was written earlier, read back: from `results.json`, or out of the page that holds it.
//!
//! On the path: `report` and `compare --baseline` begin here. Every field of a record may be absent,
//! so that older ones open; hence what is no record at all has to be told apart here, in a sentence.

use thiserror::Error;

use super::{ComparisonRecord, FORMAT_VERSION};

/// Where the record stands in a page.
const PAGE_BEGIN: &str = "<script type=\"application/json\" id=\"results\">";
const PAGE_END: &str = "</script>";

/// Why a text is not a record that this version can show.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Not JSON, or not of these types.
    #[error("it is no record of `millpond compare`: {0}")]
    Json(#[from] serde_json::Error),
    /// A page without a record.
    #[error("this page holds no record of `millpond compare`")]
    NoRecordInPage,
    /// JSON of something else.
    #[error("it is no record of `millpond compare`: it has no candidates")]
    NoCandidates,
    /// From the future: fields may mean something else there.
    #[error(
        "its layout is version {found}, and this program knows those up to {known}: use the millpond \
         that wrote it ({version}), or a newer one"
    )]
    Newer {
        /// Of the record.
        found: u32,
        /// Of this program.
        known: u32,
        /// Who wrote it.
        version: String,
    },
}

impl ComparisonRecord {
    /// Reads `results.json`, or a `report.html` of [`crate::report::html::render`].
    ///
    /// # Errors
    /// If the text is none of both.
    pub fn from_text(text: &str) -> Result<Self, RecordError> {
        let json = if text.trim_start().starts_with('<') {
            let (_, rest) = text
                .split_once(PAGE_BEGIN)
                .ok_or(RecordError::NoRecordInPage)?;
            let (json, _) = rest
                .split_once(PAGE_END)
                .ok_or(RecordError::NoRecordInPage)?;
            json
        } else {
            text
        };
        let record: Self = serde_json::from_str(json)?;
        if record.format_version > FORMAT_VERSION {
            return Err(RecordError::Newer {
                found: record.format_version,
                known: FORMAT_VERSION,
                version: record.version,
            });
        }
        if record.format_version == 0 || record.candidates.is_empty() {
            return Err(RecordError::NoCandidates);
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CandidateRounds, LoadReport};

    fn record() -> ComparisonRecord {
        let mut record = ComparisonRecord::new("1.2.3");
        record.candidates = vec![CandidateRounds {
            name: "a<b> & \"c\"".to_owned(),
            ..CandidateRounds::default()
        }];
        record
    }

    /// Goal: the record comes back whole from its file and from its page.
    #[test]
    fn a_record_comes_back_from_file_and_page() {
        let record = record();
        let file = ComparisonRecord::from_text(&record.to_json().unwrap()).unwrap();
        assert_eq!(file, record);
        let page = crate::report::html::render(&record);
        assert_eq!(ComparisonRecord::from_text(&page).unwrap(), record);
    }

    /// Goal: what is no record of a comparison is named as such, whatever it is.
    #[test]
    fn other_files_are_refused() {
        let load = serde_json::to_string(&LoadReport::default()).unwrap();
        let newer = record().to_json().unwrap();
        let newer = newer.replace("\"format_version\": 1", "\"format_version\": 9");
        for (text, part) in [
            ("", "no record"),
            ("{}", "no candidates"),
            ("[1]", "no record"),
            ("<html></html>", "page holds no record"),
            (load.as_str(), "no candidates"),
            (newer.as_str(), "version 9"),
        ] {
            let error = ComparisonRecord::from_text(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:.40}: {error}");
        }
    }
}
