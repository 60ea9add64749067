//! From a command line to an exit status.

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use crate::cli::{Command, EchoSide, NoCommand, parse};
use crate::interrupt::EXIT_INTERRUPTED;
use crate::output::say;
use crate::run::RunEnd;
use crate::serve::ReplicaError;
use crate::simulate::SimulateError;
use crate::{compare, echo, load, predict, probe, serve, simulate, stat};

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
            say(format_args!("bowline: {message}"));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match command {
        Command::Compare(args) => status(compare::run(&args)),
        Command::Load(args) => status(load::run(&args)),
        Command::Simulate(args) => either(simulate::run(&args), SimulateError::is_usage),
        Command::Predict(args) => either(predict::run(&args), SimulateError::is_usage),
        Command::Serve(args) => either(serve::run(&args), ReplicaError::is_usage),
        Command::Stat(args) => status(stat::run(&args).map(|()| RunEnd::Whole)),
        Command::Echo(EchoSide::Server(args)) => status(echo::serve(&args).map(|()| RunEnd::Whole)),
        Command::Echo(EchoSide::Client(args)) => status(echo::drive(&args)),
        Command::Probe(args) => status(probe::run(&args)),
    }
}

fn status<E: Display>(result: Result<RunEnd, E>) -> ExitCode {
    either(result, |_| false)
}

/// The status of a command that may find out late that its line was wrong.
fn either<E: Display>(result: Result<RunEnd, E>, is_usage: impl Fn(&E) -> bool) -> ExitCode {
    match result {
        Ok(RunEnd::Whole) => ExitCode::SUCCESS,
        Ok(RunEnd::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
        Ok(RunEnd::Failed) => ExitCode::FAILURE,
        Err(error) => {
            say(format_args!("bowline: {error}"));
            if is_usage(&error) { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
        }
    }
}
