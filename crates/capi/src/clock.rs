//! The time on the clock of the user.

use sardonyx_ort::profile::LocalTime;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time in UTC to the millisecond: the name of a profile is to be new, and Rust's
/// standard library knows no time zones.
pub(crate) fn read_local_time() -> LocalTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, days) = (since.as_secs(), since.as_secs() / 86_400);
    let date = to_date(days);
    LocalTime {
        year: date.year,
        month: date.month,
        day: date.day,
        hour: count_units(seconds, 3600, 24),
        minute: count_units(seconds, 60, 60),
        second: count_units(seconds, 1, 60),
        millisecond: u16::try_from(since.subsec_millis()).unwrap_or(0),
    }
}

/// Returns the number of whole units in a time, without what larger units take.
fn count_units(seconds: u64, unit: u64, per_larger: u64) -> u8 {
    u8::try_from(seconds / unit % per_larger).unwrap_or(0)
}

/// Day of the Gregorian calendar.
#[derive(Debug, PartialEq, Eq)]
struct Date {
    year: i32,
    month: u8,
    day: u8,
}

/// Returns the date of a day that is counted from the first of January 1970.
fn to_date(days: u64) -> Date {
    let mut left = days;
    let mut year = 1970;
    while left >= days_of_year(year) {
        left -= days_of_year(year);
        year += 1;
    }
    let february = if days_of_year(year) == 366 { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    Date { year, month, day: u8::try_from(left + 1).unwrap_or(1) }
}

fn days_of_year(year: i32) -> u64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if is_leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, year, month, day) in [
            (0, 1970, 1, 1),
            (58, 1970, 2, 28),
            (59, 1970, 3, 1),
            (11_016, 2000, 2, 29),
            (20_786, 2026, 11, 29),
        ] {
            assert_eq!(to_date(days), Date { year, month, day }, "{days}");
        }
    }
}
