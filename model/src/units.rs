//! Sizes and figures as people write and read them.

/// Bytes in a text such as `16GiB`, `512MiB` or `0`; `None` if it is not one.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    (bytes.is_finite() && bytes <= 2f64.powi(60)).then_some(bytes as u64)
}

/// Bytes in the largest binary unit that keeps at least one digit before the point.
#[must_use]
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{} {unit}", plain(value))
}

/// A measured figure: three significant digits, whole and in groups of three from a thousand on.
#[must_use]
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m == 0.0 || m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.0995 => 3,
        _ => 4,
    };
    let text = format!("{magnitude:.decimals$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let sign = if value < 0.0 { "−" } else { "" };
    let whole = grouped(whole);
    fraction.map_or_else(|| format!("{sign}{whole}"), |fraction| format!("{sign}{whole}.{fraction}"))
}

/// A figure someone set rather than measured: as [`figure`], without zeros at its end.
#[must_use]
pub fn plain(value: f64) -> String {
    let text = figure(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A measured figure in thousands, millions or billions from a thousand on, such as `1.96 M`.
#[must_use]
pub fn compact(value: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let step = steps.into_iter().find(|(step, _)| value.abs() >= step * 0.9995);
    step.map_or_else(|| figure(value), |(step, letter)| format!("{}\u{202f}{letter}", figure(value / step)))
}

/// A whole number in groups of three.
#[must_use]
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A share as a percentage.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", plain(share * 100.0))
}

/// `value` with nine significant digits: what a measurement can carry and a decimal text gives back exactly.
#[must_use]
pub fn nine_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.8e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(parse_bytes("16GiB"), Some(16 << 30));
        assert_eq!(parse_bytes("1.5GiB"), Some(3 << 29));
        assert_eq!(parse_bytes("0"), Some(0));
        for bad in ["", "GiB", "16GB", "16 gib", "-1GiB", "99999999999TiB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(512), "512 B");
    }

    #[test]
    fn figures_keep_three_digits() {
        let cases = [
            (1_234_567.0, "1\u{202f}234\u{202f}567"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.239, "1.24"),
            (0.2104, "0.210"),
            (0.0, "0"),
            (0.00214, "0.0021"),
            (-2.5, "−2.50"),
            (999.96, "1\u{202f}000"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
        assert_eq!((plain(4.0), plain(0.5), plain(100.0)), ("4".into(), "0.5".into(), "100".into()));
        assert_eq!((compact(1_960_784.0), compact(999.0)), ("1.96\u{202f}M".into(), "999".into()));
        assert_eq!((compact(999_600.0), count(71_999)), ("1.00\u{202f}M".into(), "71\u{202f}999".into()));
    }
}
