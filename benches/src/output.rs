//! What goes to standard output and standard error, whoever reads it, or no longer does.

use core::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes `text` and a line break to standard output, at once.
///
/// A reader that has gone away, such as `head`, wants no more: that is no failure.
///
/// # Errors
/// Standard output takes no more: a disk is full, for one.
pub fn print(text: impl Display) -> io::Result<()> {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(output: &mut impl Write, text: impl Display) -> io::Result<()> {
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to standard error. Where that cannot be, there is nobody left to tell.
pub fn say(line: impl Display) {
    writeln!(io::stderr(), "{line}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses everything, in one way.
    struct Refusing(ErrorKind);

    impl Write for Refusing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is_one() {
        assert!(print_to(&mut Refusing(ErrorKind::BrokenPipe), "line").is_ok());
        let full = print_to(&mut Refusing(ErrorKind::StorageFull), "line");
        assert_eq!(full.expect_err("full").kind(), ErrorKind::StorageFull);
    }
}
