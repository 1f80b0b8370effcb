//! Two interleaved arcs: train, look at the proof, predict, save.

#![allow(clippy::print_stdout)]

use margrave::{Dataset, Kernel, Points, Prediction, Status, Svm, Targets};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for i in 0..60 {
        let t = f64::from(i) * 0.05;
        x.extend([t.cos(), t.sin(), 1.0 - t.cos(), 0.4 - t.sin()]);
        y.extend([1.0, -1.0]);
    }
    let data = Dataset::new(Points::dense_f64(120, 2, x)?, Targets::Real(y.clone()))?;

    let svm = Svm::classifier().kernel(Kernel::rbf(2.0)).cost(10.0);
    for (name, decision) in svm.plan(&data)?.explain()? {
        println!("{name:12} {decision}");
    }
    let fit = svm.fit(&data)?;
    println!("{}", fit.certificate());
    assert_eq!(fit.status(), Status::Optimal);

    let Prediction::Labels(found) = fit.predict(&data.points)? else { unreachable!("a classifier predicts labels") };
    let right = found.iter().zip(&y).filter(|(label, y)| (**label == 1) == (**y > 0.0)).count();
    println!("{right} of {} right", y.len());
    assert!(right > 115);

    let path = std::env::temp_dir().join(format!("arcs-{}.model", std::process::id()));
    fit.save(&path)?;
    let model = margrave::io::model::load(&path)?;
    std::fs::remove_file(&path)?;
    assert_eq!(model.n, 120);
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
