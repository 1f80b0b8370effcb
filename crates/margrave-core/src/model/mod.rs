//! Fitted machines: expansions over support vectors, linear machines.
