//! Timestamps as text: `YYYY-MM-DD`, then `T` or a space, `HH:MM[:SS[.fraction]]`, then nothing, `Z` or an offset.
//!
//! Values are microseconds since 1970-01-01 UTC. An offset is applied; text without one is UTC. A fraction is cut to
//! microseconds, never rounded. Written text has no offset, and a fraction only when it is not zero.

/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;

/// Reads a timestamp, or nothing when the text is not one.
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let year = digits(&date[..4])?;
    let (month, day) = (digits(&date[5..7])?, digits(&date[8..10])?);
    if date[4] != b'-' || date[7] != b'-' || !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let midnight = days_from_civil(year, month, day) * DAY;
    let Some((separator, time)) = rest.split_first() else { return Some(midnight) };
    if !matches!(separator, b'T' | b't' | b' ') {
        return None;
    }
    let (clock, zone) = time_of_day(time)?;
    Some(midnight + clock - offset(zone)?)
}

/// Time of day in microseconds, and the text behind it.
fn time_of_day(text: &[u8]) -> Option<(i64, &[u8])> {
    let (hm, mut rest) = text.split_at_checked(5)?;
    let (hour, minute) = (digits(&hm[..2])?, digits(&hm[3..5])?);
    if hm[2] != b':' || hour > 23 || minute > 59 {
        return None;
    }
    let mut micros = (hour * 60 + minute) * 60_000_000;
    if let [b':', a, b, behind @ ..] = rest {
        let second = digits(&[*a, *b])?;
        if second > 59 {
            return None;
        }
        micros += second * 1_000_000;
        rest = behind;
        if let [b'.' | b',', behind @ ..] = rest {
            let length = behind.iter().take_while(|b| b.is_ascii_digit()).count();
            if length == 0 {
                return None;
            }
            let mut unit = 100_000;
            for digit in &behind[..length.min(6)] {
                micros += i64::from(digit - b'0') * unit;
                unit /= 10;
            }
            rest = &behind[length..];
        }
    }
    Some((micros, rest))
}

/// Offset from UTC in microseconds: nothing, `Z`, `+hh`, `+hhmm` or `+hh:mm`.
fn offset(zone: &[u8]) -> Option<i64> {
    let (sign, hour, minute) = match zone {
        [] | [b'Z' | b'z'] => return Some(0),
        [sign, a, b] => (sign, digits(&[*a, *b])?, 0),
        [sign, a, b, c, d] | [sign, a, b, b':', c, d] => (sign, digits(&[*a, *b])?, digits(&[*c, *d])?),
        _ => return None,
    };
    if hour > 23 || minute > 59 {
        return None;
    }
    let micros = (hour * 60 + minute) * 60_000_000;
    match sign {
        b'+' => Some(micros),
        b'-' => Some(-micros),
        _ => None,
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    let mut value = 0;
    for b in text {
        if !b.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(b - b'0');
    }
    Some(value)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a proleptic Gregorian date, counted in years that begin in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// Appends `YYYY-MM-DD HH:MM:SS[.ffffff]`, with trailing zeros of the fraction cut.
pub fn write(out: &mut Vec<u8>, micros: i64) {
    let (year, month, day) = civil_from_days(micros.div_euclid(DAY));
    let clock = micros.rem_euclid(DAY);
    if (0..=9999).contains(&year) {
        pair(out, year / 100);
        pair(out, year % 100);
    } else {
        out.extend_from_slice(format!("{year:+05}").as_bytes());
    }
    let seconds = clock / 1_000_000;
    for (separator, value) in
        [(b'-', month), (b'-', day), (b' ', seconds / 3600), (b':', seconds / 60 % 60), (b':', seconds % 60)]
    {
        out.push(separator);
        pair(out, value);
    }
    let mut fraction = clock % 1_000_000;
    if fraction != 0 {
        out.push(b'.');
        let mut unit = 100_000;
        while fraction != 0 {
            out.push(digit(fraction / unit));
            fraction %= unit;
            unit /= 10;
        }
    }
}

fn pair(out: &mut Vec<u8>, value: i64) {
    out.push(digit(value / 10));
    out.push(digit(value % 10));
}

fn digit(value: i64) -> u8 {
    b'0' + (value % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(micros: i64) -> String {
        let mut out = Vec::new();
        write(&mut out, micros);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn forms_that_name_an_instant() {
        let noon = parse(b"2026-06-01T10:30:00Z").unwrap();
        for same in [
            "2026-06-01 10:30:00",
            "2026-06-01t10:30:00.0000000z",
            "2026-06-01T12:30:00+02:00",
            "2026-06-01T05:30:00-0500",
            "2026-06-01T07:00-03:30",
            "2026-06-01 11:30+01",
        ] {
            assert_eq!(parse(same.as_bytes()), Some(noon), "{same}");
        }
        assert_eq!(parse(b"1970-01-01"), Some(0));
        assert_eq!(parse(b"1969-12-31T23:59:59.999999"), Some(-1));
        assert_eq!(text(parse(b"2026-02-03 10:00:00.999999999Z").unwrap()), "2026-02-03 10:00:00.999999");
        assert_eq!(text(parse(b"2026-02-03 10:00:00.5").unwrap()), "2026-02-03 10:00:00.5");
        assert_eq!(text(-1), "1969-12-31 23:59:59.999999");
    }

    #[test]
    fn texts_that_do_not() {
        for bad in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-00-10",
            "2026-01-01T",
            "2026-01-01T24:00:00",
            "2026-01-01T10:60",
            "2026-01-01T10:00:60",
            "2026-01-01T10:00:00.",
            "2026-01-01T10:00:00+2",
            "2026-01-01T10:00:00 UTC",
            "2026-01-01x10:00:00",
            "+026-01-01",
            "2026-1-1 10:00:00",
            "2026-01-01T10:00:00*02:00",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert!(parse(b"2024-02-29").is_some() && parse(b"2000-02-29").is_some() && parse(b"1900-02-29").is_none());
    }

    proptest! {
        #[test]
        fn written_text_reads_back(micros in -62_135_596_800_000_000_i64..253_402_300_800_000_000) {
            prop_assert_eq!(parse(text(micros).as_bytes()), Some(micros));
        }

        #[test]
        fn any_text_is_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }

        #[test]
        fn any_instant_is_written(micros in any::<i64>()) {
            prop_assert!(text(micros).len() >= 19);
        }
    }
}
