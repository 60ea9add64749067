//! Text for a terminal of the usual width.

/// As many characters as a line may have.
pub const WIDTH: usize = 80;

/// Text in lines that a terminal shows whole, each after `indent` and with a line break.
pub fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut room) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count() + 1;
        if length > room {
            let end = if lines.is_empty() { "" } else { "\n" };
            lines += &format!("{end}{indent}{word}");
            room = WIDTH - indent.len() - (length - 1).min(WIDTH - indent.len());
        } else {
            lines += &format!(" {word}");
            room -= length;
        }
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        let text = wrapped(&"queues hold what comes ".repeat(20), "  ");
        assert!(text.lines().count() > 4);
        assert!(text.lines().all(|line| line.starts_with("  ") && line.len() <= WIDTH), "{text}");
        assert_eq!(wrapped("one two", ""), "one two\n");
        assert_eq!(wrapped(&"x".repeat(100), "  ").trim(), "x".repeat(100), "a word stays whole");
    }
}
