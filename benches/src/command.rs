//! From a command line to an exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::{Command, NoCommand, parse};

/// What a shell reports of a command that was used wrongly.
const EXIT_USAGE: u8 = 2;

/// Runs one command line, whose first element is the program. Errors are one line on standard
/// error and a status that is not zero.
pub fn main(line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match parse(line) {
        Ok(command) => command,
        // A reader that went away before the end of the help, such as `head`, is no failure.
        Err(NoCommand::Help(help)) => {
            help.print().ok();
            return ExitCode::SUCCESS;
        }
        Err(NoCommand::Wrong(message)) => {
            eprintln!("bowline: {message}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let name = match command {
        Command::Compare(_) => "compare",
        Command::Serve(_) => "serve",
        Command::Load(_) => "load",
        Command::Echo(_) => "echo",
    };
    eprintln!("bowline: this build has no client and no server yet, which '{name}' needs");
    ExitCode::FAILURE
}
