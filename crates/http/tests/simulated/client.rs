//! Clients of the storm: scripts that hold a conversation in some manner, and judge what they hear.

use crate::conversation::{Conversation, Depth};
use crate::line::{Line, Speech};
use crate::responses::Responses;
use crate::stage::{MILLISECOND_NS, SECOND_NS};
use fastrand::Rng;
use millpond_io::driver::sim::{Network, PeerRead, Turn};

/// Longer than any limit of the server lets a client wait.
const PATIENCE_NS: u64 = 600 * SECOND_NS;

/// How a client behaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ResponseFraming {
    /// Says everything, hears everything, then leaves or lets the server leave.
    Polite,
    /// Says everything and a FIN at once, then listens.
    HalfClosing,
    /// A FIN in the middle of something.
    FinishingEarly,
    /// Breaks the connection off at some byte.
    Resetting,
    /// Closes at some byte, perhaps with responses unread.
    Vanishing,
    /// Says everything and never reads.
    Deaf,
    /// Says anything.
    Raving,
    /// Says nothing.
    Silent,
}

impl ResponseFraming {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        match rng.u8(0..16) {
            0 => Self::Resetting,
            1 => Self::Vanishing,
            2 => Self::Raving,
            3 => Self::FinishingEarly,
            4 => Self::Silent,
            5 => Self::Deaf,
            6..=8 => Self::HalfClosing,
            _ => Self::Polite,
        }
    }
}

/// How a client's life ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// It heard all it was owed.
    Satisfied,
    /// It left, as is its manner.
    Left,
    /// The server closed the connection between two responses, though more was owed.
    CutBetween,
    /// The network broke it.
    Broken,
    /// It knows that there is no room.
    TurnedAway,
}

/// How fast it does things.
#[derive(Clone, Copy, Debug)]
struct Pace {
    write_bytes_max: usize,
    read_bytes_max: usize,
    pause_ns_max: u64,
}

pub(crate) struct Client {
    peer: Option<Line>,
    pub(crate) manner: ResponseFraming,
    conversation: Conversation,
    /// Bytes after which an ill-mannered client does what it does.
    leaves_at: usize,
    part: usize,
    written_of_part: usize,
    written: usize,
    responses: Responses,
    answers_heard: usize,
    /// The server said that it closes, for reasons of its own perhaps.
    was_told_close: bool,
    continues_heard: usize,
    has_finished: bool,
    pace: Pace,
    started_ns: u64,
    /// The server's pools refuse something, or it stops and discards what comes then.
    pub(crate) may_be_cut: bool,
    rng: Rng,
}

impl Client {
    pub(crate) fn drawn(network: &Network, rng: &mut Rng, speech: Speech) -> Self {
        let manner = ResponseFraming::drawn(rng);
        Self::speaking(network, rng, manner, speech)
    }

    fn speaking(network: &Network, rng: &mut Rng, manner: ResponseFraming, speech: Speech) -> Self {
        let mut rng = rng.fork();
        // One that says everything at once does not wait for responses.
        let depth = match manner {
            ResponseFraming::Polite | ResponseFraming::Resetting | ResponseFraming::Vanishing
                if rng.bool() =>
            {
                Depth::One
            }
            _ => Depth::All,
        };
        let conversation = Conversation::drawn(&mut rng, depth, 8);
        let line = Line::new(network, speech);
        if rng.u8(0..3) == 0 {
            line.peer.set_receive_window(200 + rng.usize(0..2_000));
        }
        let pace = Pace {
            write_bytes_max: [1, 30, 4_000][rng.usize(0..3)],
            read_bytes_max: [50, 500, 100_000][rng.usize(0..3)],
            pause_ns_max: [0, 100_000, 3 * MILLISECOND_NS][rng.usize(0..3)],
        };
        Self {
            peer: Some(line),
            manner,
            leaves_at: rng.usize(0..=conversation.len()),
            conversation,
            part: 0,
            written_of_part: 0,
            written: 0,
            responses: Responses::default(),
            answers_heard: 0,
            was_told_close: false,
            continues_heard: 0,
            has_finished: false,
            pace,
            started_ns: network.now_ns(),
            may_be_cut: false,
            rng,
        }
    }

    /// One turn; `Err`: its end.
    pub(crate) fn act(&mut self, network: &Network) -> Result<Turn, Ended> {
        let is_late = network.now_ns() > self.started_ns + PATIENCE_NS;
        assert!(!is_late, "{self:?} waits for ever");
        let before = (
            self.written,
            self.responses.unread.len(),
            self.answers_heard,
        );
        match self.manner {
            ResponseFraming::Deaf => self.say_and_wait(),
            ResponseFraming::Silent => self.wait_for_end(),
            ResponseFraming::Raving => self.rave(),
            ResponseFraming::Resetting if self.written >= self.leaves_at => {
                self.peer.take().unwrap().peer.reset();
                Err(Ended::Left)
            }
            ResponseFraming::Vanishing if self.written >= self.leaves_at => {
                drop(self.peer.take());
                Err(Ended::Left)
            }
            _ => self.converse(),
        }?;
        let after = (
            self.written,
            self.responses.unread.len(),
            self.answers_heard,
        );
        if matches!(self.manner, ResponseFraming::Deaf | ResponseFraming::Silent) {
            return Ok(Turn::At(network.now_ns() + SECOND_NS));
        }
        if before == after {
            // Nothing moves: check again a little later.
            let is_accepted = self
                .peer
                .as_ref()
                .is_some_and(|line| line.peer.is_accepted());
            let most_ns = if is_accepted {
                MILLISECOND_NS
            } else {
                SECOND_NS
            };
            return Ok(Turn::At(network.now_ns() + self.rng.u64(0..most_ns)));
        }
        Ok(self.next_turn(network))
    }

    fn next_turn(&mut self, network: &Network) -> Turn {
        let now_ns = network.now_ns();
        match self.manner {
            _ if self.pace.pause_ns_max == 0 => Turn::Soon,
            _ if self.may_think() && self.rng.u8(0..20) == 0 => {
                Turn::At(now_ns + self.rng.u64(0..2 * SECOND_NS))
            }
            _ => Turn::At(now_ns + self.rng.u64(0..self.pace.pause_ns_max)),
        }
    }

    /// Between requests a client may take its time; the limits are about requests begun and responses
    /// not read.
    fn may_think(&self) -> bool {
        let said = self.conversation.complete_in(self.written);
        let is_between =
            self.written == 0 || self.conversation.request_ends.contains(&self.written);
        is_between && self.answers_heard == said
    }

    /// Writes on, as far as the conversation and its manner allow.
    fn say(&mut self) {
        let Some(part) = self.conversation.parts.get(self.part) else {
            return;
        };
        let may_speak = self.answers_heard >= part.after_answers
            && self.continues_heard >= part.after_continues;
        if !may_speak {
            return;
        }
        let mut most = part.bytes.len() - self.written_of_part;
        if matches!(
            self.manner,
            ResponseFraming::FinishingEarly
                | ResponseFraming::Resetting
                | ResponseFraming::Vanishing
        ) {
            most = most.min(self.leaves_at - self.written);
        }
        if most == 0 {
            return;
        }
        let count = 1 + self.rng.usize(0..most.min(self.pace.write_bytes_max));
        let piece = &part.bytes[self.written_of_part..self.written_of_part + count];
        // After a reset reading returns the rest.
        let written = self.peer.as_mut().unwrap().write(piece).unwrap_or(0);
        self.written_of_part += written;
        self.written += written;
        if self.written_of_part == part.bytes.len() {
            (self.part, self.written_of_part) = (self.part + 1, 0);
        }
    }

    fn converse(&mut self) -> Result<(), Ended> {
        self.hear()?;
        self.say();
        let has_said_all = match self.manner {
            ResponseFraming::HalfClosing => self.written == self.conversation.len(),
            ResponseFraming::FinishingEarly => self.written >= self.leaves_at,
            _ => false,
        };
        if has_said_all && !self.has_finished {
            self.has_finished = true;
            self.peer.as_mut().unwrap().finish();
        }
        let is_content = self.answers_heard == self.conversation.expected.len();
        let waits_for_server = self.conversation.ends_by_server() || self.has_finished;
        if self.manner == ResponseFraming::Polite && is_content && !waits_for_server {
            self.check_nothing_more();
            drop(self.peer.take());
            return Err(Ended::Satisfied);
        }
        Ok(())
    }

    /// Responses it is owed, given what it said before its FIN.
    fn owed(&self) -> usize {
        match self.manner {
            ResponseFraming::FinishingEarly => self.conversation.complete_in(self.leaves_at),
            _ => self.conversation.expected.len(),
        }
    }

    /// It finished in the middle of a request whose response begins before its end.
    fn may_hear_early(&self) -> bool {
        let next = self.conversation.expected.get(self.answers_heard);
        self.manner == ResponseFraming::FinishingEarly
            && next.is_some_and(|next| next.may_start_early)
    }

    fn hear(&mut self) -> Result<(), Ended> {
        let count_max = 1 + self.rng.usize(0..self.pace.read_bytes_max);
        let peer = self.peer.as_mut().unwrap();
        let read = peer.read(&mut self.responses.unread, count_max);
        self.understand()?;
        if self.peer.as_ref().is_some_and(Line::was_never_open) {
            return Err(Ended::TurnedAway);
        }
        match read {
            PeerRead::Bytes(_) | PeerRead::Nothing => Ok(()),
            PeerRead::Finished => Err(self.judge_end()),
            PeerRead::Failed(_) => Err(self.judge_reset()),
        }
    }

    fn understand(&mut self) -> Result<(), Ended> {
        loop {
            let expected = self.conversation.expected.get(self.answers_heard);
            let is_head = expected.is_some_and(|expected| expected.is_head);
            let Some(answer) = self.responses.take(is_head) else {
                return Ok(());
            };
            if answer.status == 100 {
                self.continues_heard += 1;
                assert!(
                    self.continues_heard <= self.conversation.continues,
                    "{self:?}"
                );
                continue;
            }
            assert!(
                !self.was_told_close,
                "{self:?}: {answer:?} behind the last response"
            );
            let Some(expected) = expected else {
                panic!("{self:?} heard {answer:?} unasked");
            };
            // No room for the connection, or no memory for the request.
            if answer.status == 503 && answer.says_close && expected.status != 503 {
                return Err(Ended::TurnedAway);
            }
            self.was_told_close = answer.says_close;
            // A FIN cut a request: a request malformed as a whole may not be in its part.
            assert!(
                self.answers_heard < self.owed() || expected.closes || expected.may_start_early,
                "{self:?}: {answer:?}"
            );
            assert_eq!(answer.status, expected.status, "{self:?}");
            if let (Some(body), false) = (&expected.body, is_head) {
                assert!(
                    answer.body == *body,
                    "{self:?}: another body of {} bytes instead of {}",
                    answer.body.len(),
                    body.len()
                );
            }
            assert!(
                answer.says_close || !expected.closes,
                "{self:?}: {answer:?}"
            );
            self.answers_heard += 1;
        }
    }

    /// The server finished.
    fn judge_end(&mut self) -> Ended {
        let is_whole = self.responses.unread.is_empty();
        assert!(
            is_whole || self.may_be_cut || self.may_hear_early(),
            "{self:?}: cut within a response"
        );
        if self.answers_heard >= self.owed() {
            return Ended::Satisfied;
        }
        self.check_cut();
        Ended::CutBetween
    }

    /// The server may leave between two requests, never when it has received a part of the next.
    fn check_cut(&self) {
        if self.was_told_close || self.may_be_cut {
            return;
        }
        let answered = match self.answers_heard {
            0 => 0,
            heard => self.conversation.request_ends[heard - 1],
        };
        let Some(received) = self.peer.as_ref().unwrap().received() else {
            return;
        };
        assert!(
            received <= answered as u64,
            "{self:?}: {received} bytes were received, and those from {answered} on not answered"
        );
    }

    fn judge_reset(&mut self) -> Ended {
        let peer = &self.peer.as_ref().unwrap().peer;
        if peer.is_reset_by_network() {
            return Ended::Broken;
        }
        if !peer.is_accepted() {
            return Ended::TurnedAway;
        }
        // A client that sends after the end is reset. Those that do not are checked to be satisfied.
        Ended::CutBetween
    }

    fn check_nothing_more(&mut self) {
        let peer = self.peer.as_mut().unwrap();
        peer.read(&mut self.responses.unread, usize::MAX);
        assert!(
            self.responses.unread.is_empty(),
            "{self:?} heard more than it asked for"
        );
    }

    fn say_and_wait(&mut self) -> Result<(), Ended> {
        let peer = self.peer.as_mut().unwrap();
        // All at once; bytes without room are never sent.
        if self.part == 0 {
            self.part = self.conversation.parts.len();
            let all: Vec<u8> = self
                .conversation
                .parts
                .iter()
                .flat_map(|part| part.bytes.clone())
                .collect();
            let _ = peer.write(&all);
            self.leaves_at = self.rng.usize(1..60);
        }
        self.leaves_at -= 1;
        if self.leaves_at == 0 {
            drop(self.peer.take());
            return Err(Ended::Left);
        }
        Ok(())
    }

    fn wait_for_end(&mut self) -> Result<(), Ended> {
        let peer = self.peer.as_mut().unwrap();
        match peer.read(&mut self.responses.unread, usize::MAX) {
            PeerRead::Nothing => Ok(()),
            PeerRead::Finished => Err(Ended::Left),
            PeerRead::Failed(_) if peer.peer.is_reset_by_network() => Err(Ended::Broken),
            PeerRead::Failed(_) if !peer.peer.is_accepted() => Err(Ended::TurnedAway),
            // To the server the handshake may not be over when this client's last message of it is on its way: a close
            // then is a reset, and no `close_notify` is due to a client without a request.
            PeerRead::Failed(_) if peer.speaks_tls() => Err(Ended::TurnedAway),
            PeerRead::Failed(error) => panic!("{self:?}: {error}"),
            PeerRead::Bytes(_) => match self.responses.take(false) {
                None => Ok(()),
                Some(answer) if answer.status == 503 => Err(Ended::TurnedAway),
                answer => panic!("{self:?} heard {answer:?}"),
            },
        }
    }

    /// Bytes that look like requests, or like nothing.
    fn rave(&mut self) -> Result<(), Ended> {
        const SCRAPS: [&[u8]; 10] = [
            b"GET / HTTP/1.1\r\n",
            b"Host: a\r\n",
            b"\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"POST /late/1 HTTP/1.1\r\nHost: a\r\n",
            b"\x00",
        ];
        let scrap = SCRAPS[self.rng.usize(0..SCRAPS.len())];
        let peer = self.peer.as_mut().unwrap();
        let count_max = self.rng.usize(0..2_000);
        let is_over = match peer.read(&mut self.responses.unread, count_max) {
            PeerRead::Finished | PeerRead::Failed(_) => true,
            PeerRead::Bytes(_) | PeerRead::Nothing => false,
        };
        let _ = peer.write(scrap);
        if is_over || self.rng.u8(0..40) == 0 {
            let peer = self.peer.take().unwrap();
            if self.rng.bool() {
                peer.peer.reset();
            }
            return Err(Ended::Left);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.peer.as_ref().map(|line| line.peer.number());
        let is_accepted = self.peer.as_ref().map(|line| line.peer.is_accepted());
        let unread = &self.responses.unread;
        let unread = String::from_utf8_lossy(&unread[..unread.len().min(300)]);
        write!(
            formatter,
            "client {number:?} (accepted: {is_accepted:?}), {:?}, wrote {} of {}, heard {} of {} responses, at hand {unread:?}; {:?}",
            self.manner,
            self.written,
            self.conversation.len(),
            self.answers_heard,
            self.owed(),
            self.pace,
        )
    }
}
