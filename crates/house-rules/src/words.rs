//! Words that the project does not use, each with the word to use instead.

use regex::{Regex, RegexSet};

use crate::repository::{Breach, Repository};

/// The entries of `.ci/forbidden-words`: `WORD -> INSTEAD` or `/REGEX/ -> INSTEAD` in each line.
///
/// A word is found wherever it stands on its own, also as a part of an identifier and in the
/// plural: `widget` in `widgets`, `wake_widget`, `Widget` and `WidgetState`, but not in
/// `storywidgetry`.
#[derive(Debug)]
pub(crate) struct Words {
    all: RegexSet,
    each: Vec<(Regex, String)>,
}

impl Words {
    /// Reads the list.
    ///
    /// # Errors
    ///
    /// A message with the line that is neither an entry nor a comment.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut each = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        for (index, line) in lines {
            let wrong = |what: &str| format!(".ci/forbidden-words:{}: {what}", index + 1);
            let (word, instead) = line.split_once(" -> ").ok_or_else(|| wrong("not WORD -> INSTEAD"))?;
            let expression = match word.strip_prefix('/').and_then(|word| word.strip_suffix('/')) {
                Some(expression) => expression.to_owned(),
                None if word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') => {
                    expression_of(word)
                }
                None => return Err(wrong("a word has letters, digits and underscores; write /REGEX/")),
            };
            let regex = Regex::new(&expression).map_err(|error| wrong(&error.to_string()))?;
            each.push((regex, instead.trim().to_owned()));
        }
        let all = RegexSet::new(each.iter().map(|(regex, _)| regex.as_str())).map_err(|error| error.to_string())?;
        Ok(Self { all, each })
    }

    /// The forbidden words in sources and documents.
    pub(crate) fn breaches(&self, repository: &Repository) -> Vec<Breach> {
        let mut breaches = Vec::new();
        for file in repository.files.iter().filter(|file| self.all.is_match(&file.text)) {
            for (number, line) in file.lines() {
                for entry in self.all.matches(line) {
                    let (regex, instead) = &self.each[entry];
                    let found = regex.find(line).map_or("", |found| found.as_str());
                    let found = found.trim_matches(|letter: char| !letter.is_alphanumeric());
                    breaches.push(file.breach("words", Some(number), format!("\"{found}\": write {instead}")));
                }
            }
        }
        breaches
    }
}

/// What finds `word` in prose, `snake_case`, `CamelCase` and `CAPITALS`.
fn expression_of(word: &str) -> String {
    let (sentence, capitals) = (capitalized(word), word.to_uppercase());
    let camel: String = word.split('_').map(capitalized).collect();
    let in_prose = format!(r"(?:\b|_){word}s?(?:\b|_)|\b{sentence}s?(?:\b|_)");
    let in_types = format!(r"(?:\b|_|[a-z0-9]){camel}s?(?:\b|_|[A-Z0-9])");
    let in_constants = format!(r"(?:\b|_){capitals}S?(?:\b|_)");
    format!("{in_prose}|{in_types}|{in_constants}")
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::tests::repository;

    fn lines(list: &str, text: &str) -> Vec<usize> {
        let breaches = Words::parse(list).unwrap().breaches(&repository(&[("a.rs", text)]));
        breaches.iter().filter_map(|breach| breach.line).collect()
    }

    #[test]
    fn a_word_is_found_in_prose_and_in_identifiers() {
        let found = "// The widget wakes.\nlet widgets = 1;\nwake_widget()\nWidget::new()\n\
            struct LogWidgetState;\nconst WIDGET_MAX\n";
        assert_eq!(lines("widget -> part\n", found), [1, 2, 3, 4, 5, 6]);
        assert_eq!(lines("widget -> part\n", "storywidgetry\nwidgetesque\nWidgetie\nSTORYWIDGET\n"), []);
    }

    #[test]
    fn a_word_of_parts_is_found_in_every_case() {
        assert_eq!(lines("make_space -> reserve\n", "make_space()\nMakeSpace\nMAKE_SPACE\nmake space\n"), [1, 2, 3]);
    }

    #[test]
    fn an_expression_is_taken_as_it_is() {
        assert_eq!(lines("# Why.\n\n/\\bis_done\\b/ -> is_over\n", "is_done()\ndone\nis_done_too\n"), [1]);
    }

    #[test]
    fn the_message_has_the_word_to_use() {
        let words = Words::parse("widget -> part\n").unwrap();
        let breaches = words.breaches(&repository(&[("README.md", "\nwake_widget\n")]));
        assert_eq!(breaches[0].to_string(), "README.md:2: \"widget\": write part [words]");
    }

    #[test]
    fn a_line_that_is_no_entry_is_an_error() {
        assert!(Words::parse("widget\n").unwrap_err().contains(".ci/forbidden-words:1"));
        assert!(Words::parse("a b -> c\n").is_err());
        assert!(Words::parse("/(/ -> c\n").is_err());
    }
}
