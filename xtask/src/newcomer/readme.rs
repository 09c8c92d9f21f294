//! The recipes of README.md: blocks that say `sh`, below a heading of the third level.

/// Headings and the scripts below them. A block without a language is a table or what is printed.
pub(crate) fn recipes(text: &str) -> Vec<(String, String)> {
    let (mut recipes, mut heading, mut script) = (Vec::new(), None, None::<String>);
    for line in text.lines() {
        match &mut script {
            Some(lines) if line != "```" => {
                lines.push_str(line);
                lines.push('\n');
            }
            Some(_) => recipes.extend(heading.clone().zip(script.take())),
            None if line == "```sh" => script = heading.as_ref().map(|_: &String| String::new()),
            None => {
                if let Some(title) = line.strip_prefix("### ") {
                    heading = Some(title.to_owned());
                } else if line.starts_with("## ") {
                    heading = None;
                }
            }
        }
    }
    recipes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: blocks are found with their headings; what is no recipe is not.
    #[test]
    fn recipes_are_blocks_below_headings() {
        let text = "## A\n```sh\nno\n```\n### B\ntext\n```sh\none\ntwo\n```\n```\nno\n```\n\
                    ### C\n```sh\nthree\n```\n## D\n```sh\nno\n```\n";
        let expected = [("B", "one\ntwo\n"), ("C", "three\n")];
        let expected = expected.map(|(heading, script)| (heading.to_owned(), script.to_owned()));
        assert_eq!(recipes(text), expected);
    }
}
