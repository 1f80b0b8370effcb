//! A loss written as a formula, with its exact slope.
//!
//! Formulas are sums, products, powers and a few functions of `y`, `z`, `m` = y·z and `r` = y − z. They are parsed into a
//! tree of bounded size, evaluated together with their derivative with respect to z (forward differentiation), and can do
//! nothing else.

use crate::answer::Refusal;

/// Longest formula, in bytes.
const LONGEST: usize = 500;
/// Deepest nesting.
const DEEPEST: usize = 60;

/// A function of one argument.
#[derive(Debug, Clone, Copy, PartialEq)]
enum One {
    Abs,
    Sqrt,
    Exp,
    Log,
    Log1p,
    Expm1,
    Tanh,
    Cosh,
    Sinh,
    Sin,
    Cos,
    Atan,
    Sign,
    Minus,
}

const ONES: [(&str, One); 13] = [
    ("abs", One::Abs),
    ("sqrt", One::Sqrt),
    ("exp", One::Exp),
    ("log", One::Log),
    ("log1p", One::Log1p),
    ("expm1", One::Expm1),
    ("tanh", One::Tanh),
    ("cosh", One::Cosh),
    ("sinh", One::Sinh),
    ("sin", One::Sin),
    ("cos", One::Cos),
    ("atan", One::Atan),
    ("sign", One::Sign),
];

/// A function of two arguments.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Two {
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
    Max,
    Min,
    Less,
    AtMost,
}

#[derive(Debug, Clone)]
enum Node {
    Number(f64),
    Y,
    Z,
    One(One, Box<Node>),
    Two(Two, Box<Node>, Box<Node>),
    If(Box<[Node; 3]>),
}

/// A value and its derivative with respect to z.
#[derive(Debug, Clone, Copy)]
struct Dual {
    v: f64,
    d: f64,
}

impl Node {
    fn at(&self, y: f64, z: f64) -> Dual {
        match self {
            Node::Number(v) => Dual { v: *v, d: 0.0 },
            Node::Y => Dual { v: y, d: 0.0 },
            Node::Z => Dual { v: z, d: 1.0 },
            Node::One(function, a) => one(*function, a.at(y, z)),
            Node::Two(function, a, b) => two(*function, a.at(y, z), b.at(y, z)),
            Node::If(parts) => {
                if parts[0].at(y, z).v != 0.0 {
                    parts[1].at(y, z)
                } else {
                    parts[2].at(y, z)
                }
            }
        }
    }
}

fn one(function: One, a: Dual) -> Dual {
    // A constant has no slope, even where that of the function is infinite.
    let chain = |v: f64, slope: f64| Dual { v, d: if a.d == 0.0 { 0.0 } else { slope * a.d } };
    match function {
        One::Minus => Dual { v: -a.v, d: -a.d },
        One::Abs => chain(a.v.abs(), if a.v == 0.0 { 0.0 } else { a.v.signum() }),
        One::Sqrt => chain(a.v.sqrt(), 0.5 / a.v.sqrt()),
        One::Exp => chain(a.v.exp(), a.v.exp()),
        One::Log => chain(a.v.ln(), 1.0 / a.v),
        One::Log1p => chain(a.v.ln_1p(), 1.0 / (1.0 + a.v)),
        One::Expm1 => chain(a.v.exp_m1(), a.v.exp()),
        One::Tanh => chain(a.v.tanh(), 1.0 - a.v.tanh().powi(2)),
        One::Cosh => chain(a.v.cosh(), a.v.sinh()),
        One::Sinh => chain(a.v.sinh(), a.v.cosh()),
        One::Sin => chain(a.v.sin(), a.v.cos()),
        One::Cos => chain(a.v.cos(), -a.v.sin()),
        One::Atan => chain(a.v.atan(), 1.0 / (1.0 + a.v * a.v)),
        One::Sign => Dual { v: if a.v == 0.0 { 0.0 } else { a.v.signum() }, d: 0.0 },
    }
}

fn two(function: Two, a: Dual, b: Dual) -> Dual {
    let truth = |yes: bool| Dual { v: f64::from(u8::from(yes)), d: 0.0 };
    match function {
        Two::Add => Dual { v: a.v + b.v, d: a.d + b.d },
        Two::Subtract => Dual { v: a.v - b.v, d: a.d - b.d },
        Two::Multiply => Dual { v: a.v * b.v, d: a.d * b.v + a.v * b.d },
        Two::Divide => Dual { v: a.v / b.v, d: (a.d * b.v - a.v * b.d) / (b.v * b.v) },
        Two::Power => {
            let v = a.v.powf(b.v);
            let base = if a.d == 0.0 || b.v == 0.0 { 0.0 } else { b.v * a.v.powf(b.v - 1.0) * a.d };
            let exponent = if b.d == 0.0 { 0.0 } else { v * a.v.ln() * b.d };
            Dual { v, d: base + exponent }
        }
        // At a tie any number between the two slopes is one.
        Two::Max => Dual { v: a.v.max(b.v), d: if a.v > b.v { a.d } else { b.d } },
        Two::Min => Dual { v: a.v.min(b.v), d: if a.v < b.v { a.d } else { b.d } },
        Two::Less => truth(a.v < b.v),
        Two::AtMost => truth(a.v <= b.v),
    }
}

/// A parsed formula.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    text: String,
    node: Node,
}

impl Expression {
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > LONGEST {
            return Err(Refusal::settings(format!("the expression is longer than {LONGEST} characters")));
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let node = parser.comparison()?;
        parser.blank();
        match parser.at == text.len() {
            true => Ok(Self { text: text.to_owned(), node }),
            false => Err(parser.wrong("an operator or the end of the expression")),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn value(&self, y: f64, z: f64) -> f64 {
        self.node.at(y, z).v
    }

    pub(crate) fn slope(&self, y: f64, z: f64) -> f64 {
        self.node.at(y, z).d
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn blank(&mut self) {
        while self.text[self.at..].starts_with([' ', '\t', '\n', '\r']) {
            self.at += 1;
        }
    }

    /// Takes `token` if it comes next.
    fn take(&mut self, token: &str) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn wrong(&self, expected: &str) -> Refusal {
        let column = self.text[..self.at].chars().count() + 1;
        let rest: String = self.text[self.at..].chars().take(12).collect();
        let found = if rest.is_empty() { "the end".to_owned() } else { format!("{rest:?}") };
        Refusal::settings(format!("expression, character {column}: found {found}, expected {expected}"))
    }

    fn need(&mut self, token: &str) -> Result<(), Refusal> {
        if self.take(token) { Ok(()) } else { Err(self.wrong(&format!("{token:?}"))) }
    }

    fn comparison(&mut self) -> Result<Node, Refusal> {
        let left = self.sum()?;
        for (token, function, swapped) in
            [("<=", Two::AtMost, false), (">=", Two::AtMost, true), ("<", Two::Less, false), (">", Two::Less, true)]
        {
            if self.take(token) {
                let right = self.sum()?;
                let (a, b) = if swapped { (right, left) } else { (left, right) };
                return Ok(Node::Two(function, a.into(), b.into()));
            }
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Node, Refusal> {
        let mut left = self.product()?;
        loop {
            let function = match () {
                () if self.take("+") => Two::Add,
                () if self.take("-") || self.take("−") => Two::Subtract,
                () => return Ok(left),
            };
            left = Node::Two(function, left.into(), self.product()?.into());
        }
    }

    fn product(&mut self) -> Result<Node, Refusal> {
        let mut left = self.factor()?;
        loop {
            let function = match () {
                () if self.take("*") || self.take("·") => Two::Multiply,
                () if self.take("/") => Two::Divide,
                () => return Ok(left),
            };
            left = Node::Two(function, left.into(), self.factor()?.into());
        }
    }

    fn factor(&mut self) -> Result<Node, Refusal> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Refusal::settings("the expression is nested too deeply"));
        }
        let node = if self.take("-") || self.take("−") {
            Node::One(One::Minus, self.factor()?.into())
        } else {
            let base = self.atom()?;
            // −u^2 is −(u²), and u^v^w is u^(v^w).
            if self.take("^") { Node::Two(Two::Power, base.into(), self.factor()?.into()) } else { base }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn atom(&mut self) -> Result<Node, Refusal> {
        self.blank();
        let rest = &self.text[self.at..];
        if self.take("(") {
            let inner = self.comparison()?;
            self.need(")")?;
            return Ok(inner);
        }
        let numeric = |c: char| c.is_ascii_digit() || c == '.';
        if rest.starts_with(numeric) {
            return self.number();
        }
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let start = self.at;
        self.at += name.len();
        let two = |function: Two, a: Node, b: Node| Node::Two(function, a.into(), b.into());
        match name.as_str() {
            "y" => Ok(Node::Y),
            "z" => Ok(Node::Z),
            "m" => Ok(two(Two::Multiply, Node::Y, Node::Z)),
            "r" => Ok(two(Two::Subtract, Node::Y, Node::Z)),
            "pi" => Ok(Node::Number(std::f64::consts::PI)),
            "e" => Ok(Node::Number(std::f64::consts::E)),
            "max" | "min" => {
                let [a, b] = self.arguments()?;
                Ok(two(if name == "max" { Two::Max } else { Two::Min }, a, b))
            }
            "if" => Ok(Node::If(Box::new(self.arguments()?))),
            name => match ONES.iter().find(|(known, _)| *known == name) {
                Some((_, function)) => {
                    let [a] = self.arguments()?;
                    Ok(Node::One(*function, a.into()))
                }
                None => {
                    self.at = start;
                    Err(self.wrong("a number, y, z, m = y·z, r = y − z, a function or a parenthesis"))
                }
            },
        }
    }

    fn arguments<const N: usize>(&mut self) -> Result<[Node; N], Refusal> {
        self.need("(")?;
        let mut found = Vec::with_capacity(N);
        for k in 0..N {
            if k > 0 {
                self.need(",")?;
            }
            found.push(self.comparison()?);
        }
        self.need(")")?;
        found.try_into().map_err(|_| Refusal::settings("wrong number of arguments"))
    }

    fn number(&mut self) -> Result<Node, Refusal> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digits = |at: &mut usize| {
            while bytes.get(*at).is_some_and(|b| b.is_ascii_digit() || *b == b'.') {
                *at += 1;
            }
        };
        digits(&mut self.at);
        // An exponent needs digits: in `2e` the letter is the constant.
        if bytes.get(self.at).is_some_and(|b| b"eE".contains(b)) {
            let sign = usize::from(bytes.get(self.at + 1).is_some_and(|b| b"+-".contains(b)));
            if bytes.get(self.at + 1 + sign).is_some_and(u8::is_ascii_digit) {
                self.at += 1 + sign;
                digits(&mut self.at);
            }
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(v) if v.is_finite() => Ok(Node::Number(v)),
            _ => {
                self.at = start;
                Err(self.wrong("a number"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, y: f64, z: f64) -> (f64, f64) {
        let parsed = Expression::parse(text).unwrap();
        (parsed.value(y, z), parsed.slope(y, z))
    }

    #[test]
    fn values_and_slopes_match_hand_computed_ones() {
        assert_eq!(at("1 + 2*3 - 4/2", 0.0, 0.0), (5.0, 0.0));
        assert_eq!(at("-2^2", 0.0, 0.0).0, -4.0);
        assert_eq!(at("2^3^2", 0.0, 0.0).0, 512.0);
        assert_eq!(at("1.5e-3 + .5", 0.0, 0.0).0, 0.5015);
        assert_eq!(at("max(0, 1 - m)", -1.0, 0.5), (1.5, 1.0));
        assert_eq!(at("max(0, 1 - m)", 1.0, 3.0), (0.0, 0.0));
        assert_eq!(at("r^2/2", 3.0, 1.0), (2.0, -2.0));
        assert_eq!(at("if(abs(r) < 1, r^2/2, abs(r) - 1/2)", 0.0, 4.0), (3.5, 1.0));
        assert_eq!(at("(z >= 1) + (z < 0)", 0.0, 1.0).0, 1.0);
        assert_eq!(at("sqrt(0)", 1.0, 1.0), (0.0, 0.0));
    }

    #[test]
    fn slopes_are_derivatives() {
        let formulas = [
            "log(1+exp(-m))",
            "log1p(exp(-m))",
            "expm1(z)*z",
            "tanh(2*z) - cosh(r)/sinh(3+z)",
            "sin(z)*cos(z) + atan(z)",
            "(z^2+1)^1.5",
            "2^z",
            "z^z",
            "abs(z)*sqrt(z+2)",
            "min(z, 2*z) * if(z > 0, z, -z)",
        ];
        for text in formulas {
            let parsed = Expression::parse(text).unwrap();
            for (y, z) in [(1.0, 0.7), (-1.0, 1.3), (0.4, 2.1)] {
                let h = 1e-6;
                let measured = (parsed.value(y, z + h) - parsed.value(y, z - h)) / (2.0 * h);
                let slope = parsed.slope(y, z);
                assert!((measured - slope).abs() < 1e-6 * (1.0 + slope.abs()), "{text} at {z}: {slope} {measured}");
            }
        }
    }

    #[test]
    fn errors_say_where() {
        for (text, column) in [("1 + ", 5), ("foo(1)", 1), ("max(1)", 6), ("(1", 3), ("1 $ 2", 3), ("", 1), ("m m", 3)]
        {
            let refusal = Expression::parse(text).unwrap_err();
            assert!(refusal.message.contains(&format!("character {column}:")), "{text}: {}", refusal.message);
        }
        assert!(Expression::parse(&"(".repeat(400)).is_err());
        assert!(Expression::parse(&"-".repeat(400)).is_err());
        assert!(Expression::parse(&"1+".repeat(400)).is_err());
        assert!(Expression::parse("1..2").is_err() && Expression::parse("é").is_err());
    }
}
