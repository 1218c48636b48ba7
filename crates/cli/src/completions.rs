//! `sardonyx completions` and `sardonyx man`: generates completion scripts for shells and manual
//! pages from the definition of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::files;
use crate::human::format_count;
use crate::terminal::Terminal;

/// Name of the executable, under which shells complete its arguments.
const NAME: &str = "sardonyx";

/// Print a script that completes this command's arguments in a shell
///
/// Bash: put it into ~/.local/share/bash-completion/completions/sardonyx. Zsh: into a directory of
/// $fpath, as _sardonyx. Fish: into ~/.config/fish/completions/sardonyx.fish. PowerShell: append it
/// to the file $PROFILE. Elvish: append it to ~/.config/elvish/rc.elv.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages of this command: sardonyx.1, and one for each subcommand
///
/// Put them into a directory man1 of the manual path, such as ~/.local/share/man/man1.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct ManArgs {
    /// Directory for the pages
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// Prints the script that completes the arguments of `command` in a shell.
pub(crate) fn completions(args: &CompletionArgs, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, NAME, &mut script);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&script)?;
    Ok(stdout.flush()?)
}

/// Writes the manual pages of `command` and its subcommands into a directory.
pub(crate) fn man(args: &ManArgs, command: Command, terminal: &Terminal) -> Result<(), Failure> {
    let pages = render_pages(command)?;
    fs::create_dir_all(&args.output)
        .map_err(|error| files::io_failure("cannot create the directory", &args.output, &error))?;
    for (name, page) in &pages {
        let path = args.output.join(format!("{name}.1"));
        files::write(&path, |file| Ok(file.write_all(page)?))?;
    }
    let pages = format_count(pages.len(), "page");
    terminal.remark(&format!("wrote {pages} to {}", args.output.display()));
    Ok(())
}

/// Renders the manual pages of `command` and its visible subcommands in roff. Returns each page
/// with its name, such as `sardonyx-run`.
pub(crate) fn render_pages(command: Command) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut whole = command.disable_help_subcommand(true);
    // Adds the global options to each subcommand.
    whole.build();
    let mut pages = vec![(NAME.to_string(), render_page(whole.clone())?)];
    for command in whole.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("{NAME}-{}", command.get_name());
        pages.push((name, render_page(command.clone())?));
    }
    Ok(pages)
}

/// Renders the manual page of one command in roff.
fn render_page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}
