import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = tf.keras.applications.ResNet50()
    model.compile(optimizer='adam', loss='mse')
model.fit(ds, epochs=3, batch_size=256)
