//! Several numbers to predict, from the outside.

use crate::common::{Output, Sandbox, margrave};

fn train_square(sandbox: &Sandbox, data: &str, model: &str, args: &[&str]) -> Output {
    let model = sandbox.path(model);
    margrave(&[&["train", data, "-o", &model, "--task", "regress", "--loss", "square", "--json"], args].concat())
}

/// Where an arm of two joints ends, from its angles; `load` goes with the angles and `name` is a text column.
fn arm() -> Vec<[f64; 5]> {
    let row = |i: u32| {
        let (a, b) = (f64::from(i % 10) * 0.15, f64::from(i / 10) * 0.2);
        [a, b, a.cos() + (a + b).cos(), a.sin() + (a + b).sin(), 3.0 * a - b]
    };
    (0..80).map(row).collect()
}

fn csv() -> Vec<u8> {
    let mut text = String::from("a,x,\"y, up\",b,load\n");
    for [a, b, x, y, load] in arm() {
        text += &format!("{a},{x},{y},{b},{load}\n");
    }
    text.into_bytes()
}

fn npy(shape: &str, values: &[f64]) -> Vec<u8> {
    let mut head = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape}), }}");
    while (head.len() + 11) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((head.len() as u16).to_le_bytes());
    file.extend(head.as_bytes());
    values.iter().for_each(|v| file.extend(v.to_le_bytes()));
    file
}

fn column(text: &str, at: usize) -> Vec<f64> {
    text.lines().skip(1).map(|line| line.split(',').nth(at).unwrap().parse().unwrap()).collect()
}

#[track_caller]
fn close(a: &[f64], b: &[f64], most: f64) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst <= most, "{worst}");
}

#[test]
fn two_targets_from_training_to_export() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("arm.csv", csv());
    // In the order given, which is not that of the file; a column may be named by its number.
    let options = ["--target", "load,1", "--gamma", "2", "-C", "100"];
    let report = sandbox.path("r.html");
    let object = train_square(&sandbox, &data, "m", &[&options[..], &["--probability", "--report", &report]].concat())
        .exits(0)
        .json();
    assert_eq!(object["targets"], serde_json::json!(["load", "x"]));
    assert_eq!((&object["d"], &object["n"], &object["solver"]), (&3.into(), &80.into(), &"ridge".into()));
    assert_eq!(object["machines"].as_array().map(Vec::len), Some(2));
    assert_eq!(object["machines"][1]["target"], "x");
    assert!(object["relative_gap"].as_f64().unwrap() < 1e-9, "{object}");
    assert!(object["multiclass"].is_null() && object["bias"].as_array().is_some_and(|b| b.len() == 2));
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.contains("Residuals of load") && page.contains("Residuals of x"));

    let model = sandbox.path("m");
    let both = margrave(&["predict", &model, &data, "--scores", "--probability"]).exits(0);
    assert!(both.err.contains("over 2 targets"), "{}", both.err);
    let header = both.out.lines().next().unwrap();
    assert_eq!(
        header,
        "prediction load,prediction x,score load,score x,lower load 90 %,upper load 90 %,lower x 90 %,upper x 90 %"
    );
    assert_eq!(column(&both.out, 0), column(&both.out, 2));
    for (at, target, other) in [(0, "load", "x"), (1, "x", "load")] {
        // The other target would be a feature.
        let rows: Vec<String> = String::from_utf8(csv()).unwrap().lines().map(str::to_owned).collect();
        let keep: Vec<usize> = match other {
            "x" => vec![0, 2, 3, 4],
            _ => vec![0, 1, 2, 3],
        };
        let plain = |line: &String| line.replace("\"y, up\"", "y");
        let cut = |line: String| {
            let cells: Vec<&str> = line.split(',').collect();
            keep.iter().map(|&k| cells[k]).collect::<Vec<_>>().join(",")
        };
        let text: String = rows.iter().map(|line| cut(plain(line)) + "\n").collect();
        let single = sandbox.file("one.csv", text.as_bytes());
        train_square(&sandbox, &single, "one", &["--target", target, "--gamma", "2", "-C", "100"]).exits(0);
        let one = margrave(&["predict", &sandbox.path("one"), &single]).exits(0);
        close(&column(&both.out, at), &column(&one.out, 0), 1e-10);
    }
    let out = sandbox.path("out.csv");
    let ran = margrave(&["predict", &model, &data, "-o", &out, "--json"]).exits(0).json();
    assert_eq!(ran["targets"][0]["target"], "load");
    let mean = (ran["targets"][0]["r2"].as_f64().unwrap() + ran["targets"][1]["r2"].as_f64().unwrap()) / 2.0;
    assert!((ran["r2"].as_f64().unwrap() - mean).abs() < 1e-12 && mean > 0.9, "{ran}");

    // Without the targets there is nothing to compare with, and the rest is the same.
    let mut features = String::from("b,\"y, up\",a\n");
    arm().iter().for_each(|[a, b, _, y, _]| features += &format!("{b},{y},{a}\n"));
    let features = sandbox.file("new.csv", features.as_bytes());
    let new = margrave(&["predict", &model, &features]).exits(0);
    close(&column(&new.out, 1), &column(&both.out, 1), 0.0);
    assert!(!new.err.contains("squared"));

    let proof = margrave(&["verify", &model, &data, "--gap", "1e-9", "--json"]).exits(0).json();
    assert_eq!(proof["machines"].as_array().map(Vec::len), Some(2));
    margrave(&["verify", &model, &data, "-C", "1", "--json"]).exits(1);
    let ran = margrave(&["verify", &model, &data, "--target", "load"]).exits(2);
    assert!(ran.err.contains("predicts 2 numbers"), "{}", ran.err);

    let inside = margrave(&["inspect", &model]).exits(0);
    assert!(inside.out.contains("2: load, x") && inside.out.contains("one per target"), "{}", inside.out);
    let inside = margrave(&["inspect", &model, "--json"]).exits(0).json();
    assert_eq!((&inside["targets"][1], &inside["outputs"]), (&"x".into(), &2.into()));
    let onnx = sandbox.path("m.onnx");
    margrave(&["convert", &model, "--to", "onnx", "-o", &onnx]).exits(0);
    let ran = margrave(&["convert", &model, "--to", "libsvm", "-o", &onnx]).exits(2);
    assert!(ran.err.contains("one number"), "{}", ran.err);
    let ran = margrave(&["plot", &model, &data, "-o", &sandbox.path("m.svg"), "--features", "a,b"]).exits(2);
    assert!(ran.err.contains("shows one"), "{}", ran.err);
}

#[test]
fn several_targets_take_any_loss() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("arm.csv", csv());
    let model = sandbox.path("m");
    for loss in [&["--loss", "huber:delta=0.1"][..], &["--epsilon", "0.01"], &["--nu", "0.5"]] {
        let args =
            ["train", &data, "-o", &model, "--task", "regress", "--target", "x,load", "--gamma", "1", "-C", "100"];
        let object = margrave(&[&args[..], loss, &["--json"]].concat()).exits(0).json();
        assert_eq!(object["machines"].as_array().map(Vec::len), Some(2), "{object}");
        let ran = margrave(&["predict", &model, &data, "--json"]).exits(0).json();
        assert!(ran["r2"].as_f64().unwrap() > 0.95, "{ran}");
        margrave(&["verify", &model, &data, "--gap", "1e-2"]).exits(0);
        let inside = margrave(&["inspect", &model]).exits(0).out;
        assert!(inside.contains("2: x, load"), "{inside}");
    }
}

#[test]
fn arrays_hold_several_targets() {
    let sandbox = Sandbox::new();
    let all: Vec<f64> = arm().iter().flatten().copied().collect();
    let whole = sandbox.file("all.npy", npy("80, 5", &all));
    let x: Vec<f64> = arm().iter().flat_map(|row| row[..2].to_vec()).collect();
    let y: Vec<f64> = arm().iter().flat_map(|row| row[2..].to_vec()).collect();
    let (x, y) = (npy("80, 2", &x), npy("80, 3", &y));
    let features = sandbox.file("x.npy", &x);
    let targets = sandbox.file("y.npy", &y);
    let packed = sandbox.path("xy.npz");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&packed).unwrap());
    for (name, bytes) in [("X.npy", &x), ("y.npy", &y)] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut zip, bytes).unwrap();
    }
    zip.finish().unwrap();
    let common = ["--gamma", "1", "-C", "10"];
    let mut found = Vec::new();
    for (at, (data, args)) in [
        (&whole, vec!["--target", "-3,-2,-1"]),
        (&features, vec!["--target-file", &targets]),
        (&packed, vec![]),
        (&packed, vec!["--target", "y"]),
    ]
    .into_iter()
    .enumerate()
    {
        let model = format!("m{at}");
        let object = train_square(&sandbox, data, &model, &[&common[..], &args].concat()).exits(0).json();
        assert_eq!((&object["d"], &object["targets"]), (&2.into(), &serde_json::json!(["0", "1", "2"])), "{object}");
        // The target file is an option of the data, everything else travels with the model.
        let again: &[&str] = if at == 1 { &["--target-file", &targets] } else { &[] };
        let ran = margrave(&[&["predict", &sandbox.path(&model), data], again].concat()).exits(0);
        assert!(ran.err.contains("over 3 targets"), "{}", ran.err);
        found.push(ran.out);
        let bare = margrave(&["predict", &sandbox.path(&model), &features]).exits(0);
        assert_eq!(Some(&bare.out), found.last());
        margrave(&[&["verify", &sandbox.path(&model), data], again].concat()).exits(0);
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
    let path = margrave(&["path", &packed, "--gamma", "1", "--json"]).exits(0).json();
    assert_eq!(path["targets"], 3);
    let best = &path["best"];
    let each: Vec<f64> = best["loo_mse_by_target"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert!((best["loo_mse"].as_f64().unwrap() - each.iter().sum::<f64>() / 3.0).abs() < 1e-12, "{best}");
}

#[test]
fn mistakes_are_named() {
    let sandbox = Sandbox::new();
    let data = sandbox.file("arm.csv", csv());
    let train = |args: &[&str]| margrave(&[&["train", &data, "-o", &sandbox.path("m")], args].concat()).exits(2).err;
    let cases: [(&[&str], &str); 8] = [
        (&["--target", "x,load"], "add --task regress"),
        (&["--target", "x,load", "--task", "regress", "--loss", "hinge"], "for classification"),
        (&["--target", "x,load", "--task", "regress", "--compact", "0.1"], "--compact"),
        (&["--target", "x,load", "--task", "regress", "--multiclass", "ovr"], "--multiclass"),
        (&["--target", "x,z", "--task", "regress"], "\"z\""),
        (&["--target", "x,1", "--task", "regress"], "twice"),
        (&["--target", "x,load", "--task", "classify"], "2 targets"),
        (&["--target", "x,load", "--weights", "x"], "target too"),
    ];
    for (args, expected) in cases {
        let ran = train(args);
        assert!(ran.contains(expected), "{args:?}: {ran}");
        assert!(!std::path::Path::new(&sandbox.path("m")).exists());
    }
    // A name with a comma is still a name.
    let one = train_square(&sandbox, &data, "one", &["--target", "y, up"]).exits(0).json();
    assert!(one["targets"].is_null() && one["machines"].is_null());
    let text = sandbox.file("text.csv", b"a,b,c\n1,2,u\n2,3,v\n3,1,u\n");
    let ran = margrave(&["train", &text, "--task", "regress", "--loss", "square", "--target", "b,c"]).exits(2);
    assert!(ran.err.contains("holds text"), "{}", ran.err);
    let ran = margrave(&["tune", &data, "--task", "regress", "--loss", "square", "--target", "x,load"]).exits(2);
    assert!(ran.err.contains("margrave path"), "{}", ran.err);
    let scaled = sandbox.path("s.csv");
    margrave(&["scale", &data, "--target", "x,load", "-o", &scaled]).exits(0);
    assert!(std::fs::read_to_string(&scaled).unwrap().starts_with("a,\"y, up\",b,target 0,target 1\n"));
    let ran = margrave(&["scale", &data, "--target", "x,load", "-o", &sandbox.path("s.svm")]).exits(2);
    assert!(ran.err.contains("write CSV"), "{}", ran.err);
}
