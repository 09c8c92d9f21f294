//! Whose events come first when a tick has more of them than it should handle, the same for every
//! driver.
//!
//! A client that asks and is answered, and asks again, loses most by a crowd of others who connect,
//! dribble, hang up or flood: its next request would stand behind all of theirs. So while such
//! clients are about, theirs is handled at once, and everybody else's in the order in which it came,
//! [`TURN_OF_OTHERS_EVENTS`] per tick, or more where that is still little beside the regulars' own.
//!
//! Absent on purpose: any such order among connections of our own making. A generator that handled
//! short answers before long ones would measure what it did itself.

use crate::clock::monotonic_ns;

/// Events of others in one tick. Each may end in sends and a close when the tick ends, 25 us as a rule and
/// 50 us with a hundred pipelined answers, which no clock that is read before tells: six of them held a
/// regular up for 300 us.
const TURN_OF_OTHERS_EVENTS: usize = 3;

/// One of the others for so many regulars in a tick: it is hardly longer for them, and a newcomer among
/// hundreds would wait for twenty rounds of theirs.
const REGULARS_FOR_ONE: usize = 8;

/// A turn is over earlier when handling them alone takes so long: a head of 16 KiB does, or a file that is
/// opened, and as much again may be to come when the tick ends.
const TURN_OF_OTHERS_NS: u64 = 10_000;

/// For each regular that was served the others may take so much longer, as they may have more events.
const TURN_NS_PER_REGULAR: u64 = 1_000;

/// But no longer than this.
const TURN_OF_OTHERS_NS_MAX: u64 = 50_000;

/// More than this is not a message but a load.
const MESSAGE_BYTES_MAX: u16 = 4 << 10;

/// Many clients send the head and the body of a request apart, and some the end of a chunked body
/// too. More pieces than this are dribbled.
const MESSAGE_PIECES_MAX: u8 = 4;

/// How often who brought many requests at once has to ask and wait before it is a regular.
const TIMES_TO_FORGET: u8 = 8;

/// How long after a regular's last message the others are still put off: regulars come back.
const REGULARS_NS: u64 = 100_000_000;

/// A time before any that the clock shows, by more than regulars are remembered.
const LONG_AGO_NS: u64 = 1 << 63;

/// What a socket is known for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// Nothing good: it came just now, or sends much, or without waiting for answers.
    Unknown,
    /// Its last message was short and is not answered yet.
    Asking,
    /// Its last message was short and was answered.
    Regular,
    /// A regular's next message, of which so much came in so many pieces, and that is not answered yet.
    AskingAgain { pieces: u8, bytes: u16 },
    /// It brought many requests at once, and has to ask and wait so many times more before that is
    /// forgotten: the end of a flood's message is short too, and is answered.
    Behind { times: u8 },
    /// One of these times, not answered yet.
    AskingBehind { times: u8 },
    /// We connected it.
    Ours,
}

impl Standing {
    const BEHIND: Self = Self::Behind {
        times: TIMES_TO_FORGET,
    };

    #[inline]
    pub(super) fn received(&mut self, bytes: usize) {
        // What nearly all receives of a server are, before the rest is told apart.
        if *self == Self::Regular && bytes <= usize::from(MESSAGE_BYTES_MAX) {
            let bytes = bytes as u16;
            *self = Self::AskingAgain { pieces: 1, bytes };
        } else {
            self.received_otherwise(bytes);
        }
    }

    /// See [`Self::received`].
    #[inline(never)]
    fn received_otherwise(&mut self, bytes: usize) {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        let (pieces, before) = match *self {
            Self::Ours => return,
            Self::Regular => (0, 0),
            Self::AskingAgain { pieces, bytes } => (pieces, bytes),
            Self::Unknown | Self::Asking => (MESSAGE_PIECES_MAX, 0),
            Self::Behind { times } | Self::AskingBehind { times } => {
                *self = match bytes {
                    0..=MESSAGE_BYTES_MAX => Self::AskingBehind { times },
                    _ => Self::BEHIND,
                };
                return;
            }
        };
        let bytes = bytes.saturating_add(before);
        *self = match (bytes, pieces) {
            (0..=MESSAGE_BYTES_MAX, 0..MESSAGE_PIECES_MAX) => Self::AskingAgain {
                pieces: pieces + 1,
                bytes,
            },
            (0..=MESSAGE_BYTES_MAX, _) => Self::Asking,
            _ => Self::Unknown,
        };
    }

    /// Its last message was short, but not so what it asked for.
    pub(super) fn brought_many(&mut self) {
        if *self != Self::Ours {
            *self = Self::BEHIND;
        }
    }

    /// Nothing is known of it but that it sends much.
    pub(super) fn is_flooding(self) -> bool {
        matches!(
            self,
            Self::Unknown | Self::Behind { .. } | Self::AskingBehind { .. }
        )
    }

    #[inline]
    pub(super) fn sent(&mut self) {
        match *self {
            // What nearly all sends answer, before the rest is told apart.
            Self::AskingAgain { .. } => *self = Self::Regular,
            _ => self.sent_otherwise(),
        }
    }

    /// See [`Self::sent`].
    #[inline(never)]
    fn sent_otherwise(&mut self) {
        match *self {
            Self::Asking | Self::AskingAgain { .. } | Self::AskingBehind { times: 0 } => {
                *self = Self::Regular;
            }
            Self::AskingBehind { times } => *self = Self::Behind { times: times - 1 },
            Self::Unknown | Self::Regular | Self::Behind { .. } | Self::Ours => {}
        }
    }
}

/// Whether there are regulars, and the others therefore wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regulars {
    /// When this tick began.
    tick_ns: u64,
    /// When the last tick began in which one was served.
    seen_ns: u64,
    /// How long that counts.
    memory_ns: u64,
    are_about: bool,
    /// How many were served in this tick.
    served: usize,
    /// And in the one before.
    served_before: usize,
    /// The last tick was theirs alone.
    had_last_tick: bool,
}

impl Default for Regulars {
    fn default() -> Self {
        Self {
            tick_ns: 0,
            seen_ns: LONG_AGO_NS,
            memory_ns: REGULARS_NS,
            are_about: false,
            served: 0,
            served_before: 0,
            had_last_tick: false,
        }
    }
}

impl Regulars {
    /// Regulars count for so long after their last message.
    pub(super) fn remember_for(&mut self, memory_ns: u64) {
        self.memory_ns = memory_ns;
    }

    #[inline]
    pub(super) fn begin_tick(&mut self, now_ns: u64) {
        self.served_before = std::mem::take(&mut self.served);
        if self.served_before > 0 {
            self.seen_ns = self.tick_ns;
        }
        self.tick_ns = now_ns;
        self.are_about = now_ns.wrapping_sub(self.seen_ns) < self.memory_ns;
    }

    /// Whether an event of such a socket is handled at once.
    #[inline]
    pub(super) fn is_first(&mut self, standing: Standing) -> bool {
        if matches!(standing, Standing::Regular | Standing::AskingAgain { .. }) {
            self.served += 1;
            return true;
        }
        standing == Standing::Ours || !self.are_about
    }

    /// Whether the end of such a socket is handled at once. Who leaves asks for nothing, so a regular
    /// waits for its turn with it like everybody: many that leave together would be served first.
    #[inline]
    pub(super) fn leaves_at_once(self, standing: Standing) -> bool {
        standing == Standing::Ours || !self.are_about
    }

    pub(super) fn are_about(self) -> bool {
        self.are_about
    }

    /// How many of the others that send much receive in one tick, which is no more than have their turn
    /// in it: those of whom something is held come first. One always does, or a crowd that is held keeps
    /// it out; and beside few regulars no more, since each may bring a whole buffer, which is copied before
    /// anybody has looked at it.
    pub(super) fn receives_of_others(self, held: usize) -> usize {
        match self.are_about {
            true => (self.served_lately() / REGULARS_FOR_ONE)
                .saturating_sub(held)
                .max(1),
            false => usize::MAX,
        }
    }

    /// How many of those are ended in one tick whose time is over, or that failed: each is a close, 10 to
    /// 30 us with what the kernel has of it, and a crowd's are over at once.
    #[inline]
    pub(super) fn ends_per_tick(self) -> usize {
        match self.are_about {
            true => 1,
            false => usize::MAX,
        }
    }

    /// Of two ticks, since of those with regulars every second is theirs alone.
    fn served_lately(self) -> usize {
        self.served.max(self.served_before)
    }

    fn events_of_others(self) -> usize {
        TURN_OF_OTHERS_EVENTS.max(self.served_lately() / REGULARS_FOR_ONE)
    }

    fn turn_of_others_ns(self) -> u64 {
        (self.served_lately() as u64 * TURN_NS_PER_REGULAR)
            .clamp(TURN_OF_OTHERS_NS, TURN_OF_OTHERS_NS_MAX)
    }

    /// How long the others may go on, once all regulars of the tick were handled. What those are
    /// answered leaves when the tick ends, so every second tick that has any is theirs alone.
    pub(super) fn turn_of_others(&mut self) -> Turn {
        if !self.are_about {
            return Turn::endless();
        }
        self.had_last_tick = self.served > 0 && !self.had_last_tick;
        let is_theirs = !self.had_last_tick;
        Turn {
            owes_newcomer: is_theirs,
            left: if is_theirs {
                self.events_of_others()
            } else {
                0
            },
            length_ns: self.turn_of_others_ns(),
            end_ns: None,
        }
    }

    /// Their turn in a tick before which one of them was closed: they had it with that.
    pub(super) fn turn_taken(&mut self) -> Turn {
        self.had_last_tick = self.served > 0;
        Turn::over()
    }
}

/// What the others have of one tick.
#[derive(Debug)]
pub(super) struct Turn {
    /// A newcomer is let in whatever is left.
    owes_newcomer: bool,
    left: usize,
    length_ns: u64,
    /// Known once the first of them comes: most ticks have none, and need no clock.
    end_ns: Option<u64>,
}

impl Turn {
    /// For what must not wait.
    pub(super) fn endless() -> Self {
        Self {
            owes_newcomer: false,
            left: usize::MAX,
            length_ns: 0,
            end_ns: Some(u64::MAX),
        }
    }

    /// For nobody.
    fn over() -> Self {
        Self {
            owes_newcomer: false,
            left: 0,
            length_ns: 0,
            end_ns: None,
        }
    }

    /// Whether the next newcomer is let in: one is in each turn, and more if something is left. Those who
    /// send without end take whole turns, tick for tick, and would keep the door shut.
    #[inline]
    pub(super) fn lets_in(&mut self) -> bool {
        if std::mem::take(&mut self.owes_newcomer) {
            self.left = self.left.saturating_sub(1);
            return true;
        }
        self.goes_on()
    }

    /// Whether the next of them is handled in this tick: if it is theirs at all, one is.
    #[inline]
    pub(super) fn goes_on(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        match self.end_ns {
            Some(u64::MAX) => true,
            Some(end_ns) => monotonic_ns() < end_ns,
            None => {
                self.end_ns = Some(monotonic_ns() + self.length_ns);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Standing {
        let mut standing = Standing::Unknown;
        standing.received(100);
        standing.sent();
        standing
    }

    fn is_first(standing: Standing) -> bool {
        let mut regulars = Regulars {
            are_about: true,
            ..Regulars::default()
        };
        regulars.is_first(standing)
    }

    /// Goal: only short messages in few pieces, each answered before the next, make a regular; one that
    /// is none takes it away until it is answered.
    #[test]
    fn a_regular_asks_shortly_and_waits_for_answers() {
        assert_eq!(served(), Standing::Regular);
        let mut dribbling = served();
        for _ in 0..MESSAGE_PIECES_MAX {
            assert!(is_first(dribbling), "{dribbling:?}");
            dribbling.received(1);
        }
        assert!(is_first(dribbling));
        for _ in 0..2 {
            dribbling.received(1);
            assert_eq!(dribbling, Standing::Asking);
            assert!(!is_first(dribbling));
        }
        dribbling.sent();
        assert_eq!(dribbling, Standing::Regular);
        let message = usize::from(MESSAGE_BYTES_MAX);
        for loads in [&[message + 1][..], &[message, 1], &[1 << 20]] {
            let mut flooding = served();
            loads.iter().for_each(|&bytes| flooding.received(bytes));
            assert!(!is_first(flooding), "{loads:?}");
            flooding.sent();
            assert_eq!(flooding, Standing::Unknown, "{loads:?}");
        }
        let mut in_pieces = served();
        in_pieces.received(200);
        in_pieces.received(message - 200);
        assert!(is_first(in_pieces));
        in_pieces.sent();
        assert_eq!(in_pieces, Standing::Regular);
        let mut first_message = Standing::Unknown;
        first_message.received(1);
        assert_eq!(first_message, Standing::Asking);
        let mut only_told = Standing::Unknown;
        only_told.sent();
        assert_eq!(only_told, Standing::Unknown);
        let mut ours = Standing::Ours;
        ours.received(1 << 20);
        ours.sent();
        assert_eq!(ours, Standing::Ours);
    }

    /// A crowd whose messages were a hundred requests each was served before everybody, since the last
    /// piece of each message was short and was answered. Goal: who floods is a regular after having
    /// been one for a while, and not after a message's end.
    #[test]
    fn a_flood_is_not_forgotten_at_its_end() {
        let mut flooding = served();
        for _ in 0..3 {
            flooding.received(4_000);
            flooding.brought_many();
            flooding.sent();
            flooding.received(200);
            flooding.sent();
            assert!(!is_first(flooding), "{flooding:?}");
            assert!(flooding.is_flooding());
        }
        for time in 1..=TIMES_TO_FORGET {
            assert!(!is_first(flooding), "{time}");
            flooding.received(200);
            flooding.sent();
        }
        assert_eq!(flooding, Standing::Regular);
        flooding.brought_many();
        flooding.received(1 << 20);
        assert_eq!(flooding, Standing::BEHIND);
        let mut ours = Standing::Ours;
        ours.brought_many();
        assert_eq!(ours, Standing::Ours);
    }

    /// Goal: others wait only while regulars are about, which they are for a while after they asked.
    #[test]
    fn others_wait_while_regulars_are_about() {
        let mut regulars = Regulars::default();
        let now_ns = 1_000 * REGULARS_NS;
        regulars.begin_tick(now_ns);
        assert!(regulars.is_first(Standing::Unknown));
        assert!(regulars.is_first(Standing::Regular));
        for later_ns in [1, REGULARS_NS - 1] {
            regulars.begin_tick(now_ns + later_ns);
            assert!(!regulars.is_first(Standing::Asking));
            assert!(regulars.is_first(Standing::Ours));
        }
        regulars.begin_tick(now_ns + REGULARS_NS);
        assert!(regulars.is_first(Standing::Unknown));
    }

    /// What the others have of a tick in which a regular asks.
    fn turn_beside_a_regular(regulars: &mut Regulars, now_ns: u64) -> Turn {
        regulars.begin_tick(now_ns);
        regulars.is_first(Standing::Regular);
        regulars.turn_of_others()
    }

    /// Goal: those who take all their turns leave one to newcomers, and in the regulars' own tick nobody
    /// has any.
    #[test]
    fn newcomers_have_a_turn_of_their_own() {
        let mut regulars = Regulars::default();
        let now_ns = monotonic_ns();
        regulars.begin_tick(now_ns);
        regulars.is_first(Standing::Regular);
        for round in 0..4 {
            let mut turn = turn_beside_a_regular(&mut regulars, now_ns);
            while turn.goes_on() {}
            assert_eq!(turn.lets_in(), round % 2 == 1, "{round}");
            assert!(!turn.lets_in());
        }
    }

    /// Goal: the others' turn grows with the regulars that are served beside them, this tick or the last.
    #[test]
    fn the_turn_of_others_grows_with_the_regulars() {
        let now_ns = monotonic_ns();
        let turns = [
            (1, 3, 1, 10_000),
            (12, 3, 1, 12_000),
            (24, 3, 3, 24_000),
            (32, 4, 4, 32_000),
            (80, 10, 10, 50_000),
            (800, 100, 100, 50_000),
        ];
        for (served, expected, receives, length_ns) in turns {
            let mut regulars = Regulars::default();
            turn_beside_a_regular(&mut regulars, now_ns);
            regulars.begin_tick(now_ns);
            for _ in 0..served {
                regulars.is_first(Standing::Regular);
            }
            let left = |turn: &Turn| turn.left;
            assert_eq!(left(&regulars.turn_of_others()), 0, "{served}");
            regulars.begin_tick(now_ns);
            assert_eq!(left(&regulars.turn_of_others()), expected, "{served}");
            assert_eq!(regulars.turn_of_others_ns(), length_ns, "{served}");
            assert_eq!(regulars.receives_of_others(0), receives, "{served}");
            assert_eq!(regulars.receives_of_others(expected), 1, "{served}");
            regulars.begin_tick(now_ns);
            assert_eq!(left(&regulars.turn_of_others()), 3, "{served}");
        }
    }

    /// Goal: of two ticks in a row with a regular's request, the first is theirs alone, so that its
    /// answer leaves at once, and in the second the others have their turn, which ends.
    #[test]
    fn ticks_alternate() {
        let mut regulars = Regulars::default();
        let now_ns = monotonic_ns();
        regulars.begin_tick(now_ns);
        regulars.is_first(Standing::Regular);
        for round in 0..4 {
            let mut turn = turn_beside_a_regular(&mut regulars, now_ns);
            assert_eq!(turn.goes_on(), round % 2 == 1, "{round}");
        }
        regulars.begin_tick(now_ns);
        let mut turn = regulars.turn_of_others();
        let handled = (0..1_000).take_while(|_| turn.goes_on()).count();
        assert!((1..=TURN_OF_OTHERS_EVENTS).contains(&handled), "{handled}");
    }
}
