//! Progress for people: bars on a terminal, plain lines elsewhere, both on stderr.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `total` bytes, drawn only when stderr is a terminal.
pub(super) fn bytes(total: u64, what: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{msg:36} [{bar:30}] {decimal_bytes:>9} of {decimal_total_bytes:9} {elapsed}")
            .expect("the template is a constant that a test parses")
            .progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(what.to_owned())
}

/// One line that stays.
pub(super) fn say(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        let bar = bytes(2_000_000, "kafka 4.4.0 fetch");
        bar.inc(5);
        assert_eq!((bar.length(), bar.position()), (Some(2_000_000), 5));
    }
}
