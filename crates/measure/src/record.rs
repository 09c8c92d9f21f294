//! What is written to disk: the types of `results.json` and of `load --json`.
//!
//! On the path: `lab` and `load` fill these, `analysis` adds the verdicts, the reports only read.
//! The JSON is a contract (DESIGN.md, section 1): times end in `_ns`, sizes in `_bytes`, rates in
//! `_per_s`; fields are added, never renamed. A reader ignores fields it does not know, so the
//! rounds of a newer version still open; verdicts can be had again from them.

mod custom;
mod margins;
mod measure;
mod outage;
mod round;
mod left_out;
mod limit;
mod slices;
mod comparison;
mod recommendation;
mod reading;
mod regression;
mod requests;
mod heap;
mod reach;
mod memory_course;
mod phases;
mod settings_front;
mod failure;
mod flame_graph;
mod class;
mod connection_sets;
mod cookies;
mod load;
mod rate_window;
mod second;
mod warm_up;
mod search;

pub use class::{LoadClass, LoadTls, WrongAnswers};
pub use comparison::{
    Analysis, Coexistence, ComparisonRecord, Engine, LookSettings, MeasureComparisons, PoolsEffect,
    QuestionVerdict, Settings, Subject, UnpinnedMemory, Verdicts,
};
pub use connection_sets::{
    LoadAddress, LoadConnectionSet, LoadConnectionSets, LoadConnectionsOpen, LoadSpread,
};
pub use cookies::LoadCookies;
pub use custom::CustomQuantity;
pub use failure::{LoadFailure, LoadFailureExample, LoadFailureKind};
pub use flame_graph::{FlameFunction, FlameGraph, FlameKind};
pub use heap::{HeapProfile, LifetimeClass, SizeClass};
pub use left_out::{FailureCause, LeftOut, LeftOutWhen, signal_name};
pub use limit::FoundLimit;
pub use load::{ClassHistograms, LoadErrors, LoadHistograms, LoadReport, LoadStatus, LoadVerdict};
pub use margins::{MarginClass, MarginError, Margins};
pub use measure::{Measure, MeasureParseError, Operation, Quantity, Unit};
pub use memory_course::{CoursePhase, MemoryCourse, MemoryGrowth, MemorySeries};
pub use outage::LoadOutage;
pub use phases::{
    Floor, GrowthCause, MemoryParts, PhaseEnd, PhaseHeap, PhaseKind, PhasePlan, PhaseSpec,
    PhasesAnswer, RoundsEstimate,
};
pub use rate_window::{LoadRateWindow, RateWindowEnd};
pub use reach::{HeapUse, Held, Holder, Reach};
pub use reading::RecordError;
pub use recommendation::{Advice, Choice, CostDifference, CostPart, FrontEntry, Recommendation};
pub use regression::{Regression, RegressionBy, RegressionQuestion};
pub use requests::{SentRequest, SentRequests, SentScript, SentTls};
pub use round::{
    CandidateRounds, LatencyCurve, Library, NoiseFlag, NoiseKind, PoolSetting, Role, RoundMeasures,
    RoundStatus, SteadyState,
};
pub use search::{CurvePoint, SearchEnd, SearchReport, SearchStep, StepOutcome};
pub use second::{LoadSecond, RunPart};
pub use settings_front::{SettingAnswer, SettingEffect, SettingsFront};
pub use slices::{BlockCheck, CORE_DISTANCE_CHANGE_MIN, PacedColumns, SliceColumns};
pub use warm_up::{LoadSteadiness, LoadWarmUp};

/// Version of the record's layout. Grows when a field changes meaning, not when one is added.
pub const FORMAT_VERSION: u32 = 1;
