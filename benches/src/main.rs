//! The `bowline` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    bowline_bench::command::main(std::env::args_os())
}
