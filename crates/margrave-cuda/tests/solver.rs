//! The solver on the card: every kind of dual problem, judged by the certificate.

use std::ops::ControlFlow;

use margrave_core::backend::{Backend, Device};
use margrave_core::certificate::{Certificate, certify};
use margrave_core::control::{Control, Threads};
use margrave_core::data::Points;
use margrave_core::kernel::Kernel;
use margrave_core::loss::{Epsilon, Hinge, Huber, Loss, Pinball, SquaredHinge};
use margrave_core::observe::{Observer, Step};
use margrave_core::problem::{Constraint, KernelProblem};
use margrave_core::solver::{Solution, Stop, decomposition};
use margrave_testkit::points;

/// The phases a run went through.
#[derive(Default)]
struct Phases(Vec<&'static str>);

impl Observer for Phases {
    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.0.push(step.phase);
        ControlFlow::Continue(())
    }
}

struct Case {
    name: &'static str,
    kernel: Kernel,
    loss: Box<dyn Loss>,
    cost: f64,
    constraint: Constraint,
    classes: bool,
    sparse: bool,
}

fn cases(n: usize) -> Vec<Case> {
    let rbf = Kernel::rbf(0.1);
    let case = |name, loss: Box<dyn Loss>, classes| Case {
        name,
        kernel: rbf,
        loss,
        cost: 1.0,
        constraint: Constraint::free_bias(),
        classes,
        sparse: false,
    };
    vec![
        case("hinge", Box::new(Hinge), true),
        Case { cost: 30.0, ..case("hinge, C = 30", Box::new(Hinge), true) },
        Case { constraint: Constraint::None, ..case("hinge without a bias", Box::new(Hinge), true) },
        case("squared hinge", Box::new(SquaredHinge), true),
        case("epsilon", Box::new(Epsilon { epsilon: 0.1 }), false),
        case("Huber", Box::new(Huber { delta: 0.5 }), false),
        case("pinball", Box::new(Pinball { tau: 0.8 }), false),
        Case { kernel: Kernel::Laplacian { gamma: 0.1 }, ..case("Laplacian kernel", Box::new(Hinge), true) },
        Case { kernel: Kernel::Matern52 { gamma: 0.1 }, ..case("Matérn kernel", Box::new(Hinge), true) },
        Case {
            kernel: Kernel::Poly { gamma: 0.1, coef0: 1.0, degree: 2 },
            cost: 0.01,
            ..case("polynomial kernel", Box::new(Hinge), true)
        },
        Case { sparse: true, ..case("sparse points", Box::new(Hinge), true) },
        // K over the free variables has eigenvalues far below what single precision resolves.
        Case { kernel: Kernel::rbf(0.003), cost: 300.0, ..case("a stiff set", Box::new(Hinge), true) },
        Case { constraint: Constraint::Sum(0.1 * n as f64), ..case("a given sum", Box::new(Hinge), true) },
    ]
}

fn run(problem: &KernelProblem<'_>, gap: f64) -> (Solution, f64, Vec<&'static str>) {
    let control = Control::unlimited(Threads::new(4));
    let options =
        decomposition::Options { stop: Stop { tol: None, gap: Some(gap) }, ..decomposition::Options::default() };
    let mut phases = Phases::default();
    let solution = decomposition::solve(problem, &options, &control, &mut phases).expect("a solution");
    let proof = certify(problem, &solution.beta, Some(&solution.bias), None, &control).expect("no limit");
    let Certificate::Optimality(proof) = proof else { panic!("a convex problem") };
    (solution, proof.relative_gap(), phases.0)
}

#[test]
fn problems_are_solved_on_the_card() {
    let Some(backend) = crate::card() else { return };
    let (n, d) = (6000, 6);
    let dense = points::dense(n, d, 3);
    let sparse = points::sparse(n, 40, 0.1, 4);
    for case in cases(n) {
        let points: &Points = if case.sparse { &sparse } else { &dense };
        let noise = points::normal(n, 1, 1.0, 0.0, 5);
        let mut row = vec![0.0; points.dims()];
        let targets: Vec<f64> = (0..n)
            .map(|i| {
                points.copy_row(i, &mut row);
                let z = (2.0 * row[0]).sin() + row[1] * row[2] + 0.3 * noise[i];
                if case.classes { if z > 0.0 { 1.0 } else { -1.0 } } else { z }
            })
            .collect();
        let costs = vec![case.cost; n];
        let gram = backend.square_gram(case.kernel, points).expect("a Gram on the card");
        let problem =
            KernelProblem::new(gram.as_ref(), &targets, &costs, case.loss.as_ref(), case.constraint.clone()).unwrap();
        let (solution, gap, phases) = run(&problem, 1e-6);
        let on_card = phases.iter().filter(|p| **p == "device").count();
        let others = phases.iter().filter(|p| !["device", "certify", "done"].contains(p)).count();
        eprintln!("{}: gap {gap:e}, {on_card} rounds, {others} other steps, {:?}", case.name, solution.status);
        assert!(gap <= 1e-6, "{}: gap {gap:e}", case.name);
        assert!(on_card > 0, "{}: the card was not used", case.name);
        let (again, _, _) = run(&problem, 1e-6);
        assert!(again.beta == solution.beta, "{}: another result the second time", case.name);

        let cpu = Device::Cpu.backend().square_gram(case.kernel, points).unwrap();
        let there = KernelProblem { gram: cpu.as_ref(), ..problem.clone() };
        let control = Control::unlimited(Threads::new(4));
        let Certificate::Optimality(proof) =
            certify(&there, &solution.beta, Some(&solution.bias), None, &control).unwrap()
        else {
            panic!("a convex problem")
        };
        assert!(proof.relative_gap() <= 1.1e-6, "{}: gap {:e} by the processor", case.name, proof.relative_gap());
    }
    assert_eq!(backend.failure(), None, "the processor took over");
}

/// Many noisy samples of a smooth kernel: most coefficients end at a bound, and K over the others is stiff. Rounds over sets do not end
/// there, Newton's method on the primal objective does.
#[test]
fn noisy_samples_of_a_smooth_kernel_end_on_the_card() {
    let Some(backend) = crate::card() else { return };
    let (n, d) = (24_000, 6);
    let points = points::dense(n, d, 7);
    let noise = points::normal(n, 1, 1.0, 0.0, 8);
    let mut row = vec![0.0; d];
    let values: Vec<f64> = (0..n)
        .map(|i| {
            points.copy_row(i, &mut row);
            (2.0 * row[0]).sin() + row[1] * row[2] + noise[i]
        })
        .collect();
    let classes: Vec<f64> = values.iter().map(|z| if *z > 0.0 { 1.0 } else { -1.0 }).collect();
    let even = vec![3.0; n];
    let uneven: Vec<f64> = (0..n).map(|i| if i % 3 == 0 { 0.0 } else { 1.0 + (i % 5) as f64 }).collect();
    let bias = Constraint::free_bias;
    type Problem<'a> = (&'a str, &'a dyn Loss, &'a [f64], &'a [f64], Constraint, f64);
    let problems: [Problem<'_>; 6] = [
        ("hinge", &Hinge, &classes, &even, bias(), 1e-3),
        ("hinge, gap 1e-6", &Hinge, &classes, &even, bias(), 1e-6),
        ("weights, some of them zero", &Hinge, &classes, &uneven, bias(), 1e-4),
        ("without a bias", &Hinge, &classes, &even, Constraint::None, 1e-4),
        ("pinball", &Pinball { tau: 0.8 }, &values, &even, bias(), 1e-4),
        ("epsilon", &Epsilon { epsilon: 0.5 }, &values, &even, bias(), 1e-4),
    ];
    let gram = backend.square_gram(Kernel::rbf(0.1), &points).expect("a Gram on the card");
    for (name, loss, targets, costs, constraint, wanted) in problems {
        let problem = KernelProblem::new(gram.as_ref(), targets, costs, loss, constraint).unwrap();
        let (solution, gap, phases) = run(&problem, wanted);
        let on_card = phases.iter().filter(|p| **p == "device").count();
        let others = phases.iter().filter(|p| !["device", "certify", "done"].contains(p)).count();
        eprintln!("{name}: gap {gap:e}, {on_card} rounds, {others} other steps, {:?}", solution.status);
        assert!(gap <= 1.01 * wanted, "{name}: gap {gap:e}");
        assert!(on_card > 0 && others == 0, "{name}: {on_card} rounds on the card, {others} other steps");
        let (again, _, _) = run(&problem, wanted);
        assert!(again.beta == solution.beta, "{name}: another result the second time");
    }
    assert_eq!(backend.failure(), None, "the processor took over");
}
