//! An independent judge of plans: it runs them under unfavourable schedules and looks at what comes out.
//! What the verifier accepts must pass here, however the plan was made.

mod corpus;
mod generator;
mod judge;
mod machine;
mod planted;
mod random;
mod sketch;
