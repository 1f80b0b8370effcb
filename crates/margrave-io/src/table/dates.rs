//! ISO 8601 dates in text columns.

/// A date with an optional time of day, as written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct IsoDate {
    /// Days since 1970-01-01.
    days: i64,
    year: i64,
    month: i64,
    day: i64,
    /// Hour of the day with its fraction; 0 without a time.
    hour: f64,
    /// Hours ahead of UTC.
    offset: f64,
    pub(super) has_time: bool,
}

impl IsoDate {
    /// Reads `2024-05-17`, also with a time (`2024-05-17T08:30:00.5`, blank for T) and an offset (`Z`, `+02:00`).
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let bytes = date.as_bytes();
        if bytes[4] != b'-' || bytes[7] != b'-' {
            return None;
        }
        let (year, month, day) = (digits(&date[..4])?, digits(&date[5..7])?, digits(&date[8..])?);
        if !(1..=12).contains(&month) || !(1..=month_length(year, month)).contains(&day) {
            return None;
        }
        let plain =
            Self { days: days_since_1970(year, month, day), year, month, day, hour: 0.0, offset: 0.0, has_time: false };
        if rest.is_empty() {
            return Some(plain);
        }
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        let (time, offset) = match rest.find(['Z', 'z', '+', '-']) {
            Some(at) => (&rest[..at], offset_hours(&rest[at..])?),
            None => (rest, 0.0),
        };
        Some(Self { hour: hour_of(time)?, offset, has_time: true, ..plain })
    }

    /// Days since 1970-01-01 in UTC.
    pub(super) fn number(&self) -> f64 {
        self.days as f64 + (self.hour - self.offset) / 24.0
    }

    /// Year, month, day, weekday from 1 for Monday, hour.
    pub(super) fn parts(&self) -> [f64; 5] {
        // 1970-01-01 was a Thursday.
        let weekday = (self.days + 3).rem_euclid(7) + 1;
        [self.year as f64, self.month as f64, self.day as f64, weekday as f64, self.hour]
    }
}

/// The number that `text` writes with ASCII digits alone.
fn digits(text: &str) -> Option<i64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Leap days before the year; years are 0 to 9999.
    let leaps = |year: i64| {
        let before = year - 1;
        before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400)
    };
    let months: i64 = (1..month).map(|m| month_length(year, m)).sum();
    365 * (year - 1970) + leaps(year) - leaps(1970) + months + day - 1
}

/// Hours of `08:30`, `08:30:15` or `08:30:15.25`.
fn hour_of(text: &str) -> Option<f64> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (parts.next()?, parts.next()?);
    if hour.len() != 2 || minute.len() != 2 {
        return None;
    }
    let (hour, minute) = (digits(hour)?, digits(minute)?);
    let second = match parts.next() {
        None => 0.0,
        Some(text) => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
            if whole.len() != 2 {
                return None;
            }
            digits(whole)?;
            digits(fraction)?;
            text.parse::<f64>().ok()?
        }
    };
    // 60 is a leap second.
    let valid = hour < 24 && minute < 60 && second < 61.0;
    valid.then(|| hour as f64 + minute as f64 / 60.0 + second / 3600.0)
}

/// Hours ahead of UTC of `Z`, `+02:00` or `-0530`.
fn offset_hours(text: &str) -> Option<f64> {
    let sign = match text.as_bytes()[0] {
        b'+' => 1.0,
        b'-' => -1.0,
        _ => return (text.len() == 1).then_some(0.0),
    };
    let plain = text[1..].replacen(':', "", 1);
    if plain.len() != 2 && plain.len() != 4 {
        return None;
    }
    let number = digits(&plain)?;
    let (hours, minutes) = if plain.len() == 2 { (number, 0) } else { (number / 100, number % 100) };
    (hours < 24 && minutes < 60).then(|| sign * (hours as f64 + minutes as f64 / 60.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_and_parts() {
        let number = |text: &str| IsoDate::parse(text).map(|d| d.number());
        assert_eq!(number("1970-01-01"), Some(0.0));
        assert_eq!(number("1969-12-31"), Some(-1.0));
        assert_eq!(number("2000-03-01"), Some(11017.0));
        assert_eq!(number("2024-02-29T12:00"), Some(19782.5));
        assert_eq!(number("2024-02-29 12:00:00+12:00"), Some(19782.0));
        assert_eq!(number("0000-01-01"), Some(-719_528.0));
        assert_eq!(IsoDate::parse("2024-05-17T08:30:36Z").map(|d| d.parts()), Some([2024.0, 5.0, 17.0, 5.0, 8.51]));
        for bad in [
            "",
            "2024",
            "2024-5-17",
            "2024-13-01",
            "2023-02-29",
            "2024-05-17T",
            "2024-05-17T8:30",
            "2024-05-17 25:00",
            "17.05.2024 12",
            "2024-05-17T08:30:xx",
            "2024-05-17Z",
            "2024-05-17T08:30+2",
            "２０24-05-17",
        ] {
            assert_eq!(IsoDate::parse(bad), None, "{bad}");
        }
    }
}
