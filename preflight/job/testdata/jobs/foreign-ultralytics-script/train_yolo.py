from ultralytics import YOLO

model = YOLO("yolo11n.pt")
model.train(data="coco.yaml", epochs=100, imgsz=640, batch=16, device=[0, 1, 2, 3])
